"""`owttt triage`: look at what was rejected, and export it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from owttt.cli.arguments import describe
from owttt.triage.clusters import LEAST, clustered
from owttt.triage.export import export, name_of
from owttt.triage.store import Store


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    describe(
        parser,
        "Group the samples that a stream has rejected by how they look to the network; write them as folders, CSV, "
        "FiftyOne labels, Label Studio tasks, and as a page.",
        "owttt triage state/camera-1/rejects.sqlite -o rejected",
        "owttt triage state/camera-1/rejects.sqlite -o rejected --least 20",
    )
    parser.add_argument("store", type=Path, help="the rejects.sqlite of a stream")
    parser.add_argument("-o", "--out", type=Path, required=True, help="new folder to write")
    parser.add_argument("--least", type=int, default=LEAST, help=f"samples that a group has at least ({LEAST})")
    parser.set_defaults(command=triage)


def triage(chosen: argparse.Namespace) -> None:
    """Cluster, write, tell."""
    rejects = Store.open(chosen.store).all()
    if not rejects:
        raise ValueError(f"{chosen.store}: nothing was rejected yet.")
    groups = clustered(rejects, chosen.least)
    written = export(groups, chosen.out)
    table = Table("group", "samples", "mean score", "most would have been", title=f"{len(rejects)} rejected samples")
    for number, group in groups.items():
        best = [one.best for one in group]
        mean = sum(one.score for one in group) / len(group)
        table.add_row(name_of(number), str(len(group)), f"{mean:.3f}", max(sorted(set(best)), key=best.count))
    console = Console()
    console.print(table)
    console.print(f"{chosen.out}: images/, {', '.join(path.name for path in written)}", markup=False)
