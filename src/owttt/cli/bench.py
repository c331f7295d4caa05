"""`owttt bench`: a table or figure of the paper on your data, the published numbers beside."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from owttt import models
from owttt._utils.files import write_json
from owttt._utils.progress import weighted
from owttt.bench import engine
from owttt.bench.embedding import embed
from owttt.bench.engine import Done, cost, execute
from owttt.bench.figures import draw
from owttt.bench.outcome import manifest, records
from owttt.bench.selection import Campaign
from owttt.bench.tables import EMBEDDED, find, paper
from owttt.bench.text import FORMATS, grid_table
from owttt.cli.arguments import Commands, words, writable


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("bench", help="a table or figure of the paper", description=__doc__)
    parser.add_argument("name", nargs="?", help=", ".join(paper()))
    parser.add_argument("--list", action="store_true", help="what there is, what it costs, which data it lacks")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--scale", type=float, help="share of the paper's samples a run, e.g. 0.2")
    size.add_argument("--number", type=int, help="known samples a run")
    parser.add_argument("--seeds", type=lambda text: tuple(map(int, words(text))), default=(0,), help="e.g. 0,1,2")
    parser.add_argument("--methods", type=words, default=(), metavar="ROWS", help="some of the rows, with commas")
    parser.add_argument("--columns", type=words, default=(), help="some of the columns, with commas")
    parser.add_argument("--corruptions", type=words, default=(), help="some of the corruptions, with commas")
    parser.add_argument("--model", help="another model")
    parser.add_argument("--batch-size", type=int, help="another than the paper's")
    parser.add_argument("--source", help="data set to fit source statistics on, if the model brings none")
    parser.add_argument(
        "--restrict",
        action=argparse.BooleanOptionalAction,
        help="only classes of the known set compete; as in the paper by default",
    )
    parser.add_argument(
        "--stand-in", action="append", default=[], metavar="NAME=DATA", help="use DATA in the place of NAME"
    )
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=DATA", help="one more column: DATA as the unknown set"
    )
    parser.add_argument("--format", choices=("table", *FORMATS), default="table", help="how it is printed")
    parser.add_argument("--resume", action="store_true", help="what it does anyway: what is done is never redone")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder; what is done there is not redone"
    )
    parser.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """List the tables, or run one and print it."""
    console = Console()
    if chosen.list or chosen.name is None:
        console.print(_listing())
        return
    campaign = campaign_of(chosen)
    for name in campaign.missing_data():
        note = f"{name} is not here: `owttt data get {name}`, or --stand-in {name}=DATA"
        Console(stderr=True).print(note, style="red", highlight=False, markup=False)
    done = run(campaign, chosen.results, chosen.jobs)
    table = manifest(campaign, done)
    show(table, chosen.format, console)
    if any(one.record for one in done):
        write_json(writable(chosen.results / "tables" / f"{campaign.name()}.json"), table)
    there = records(table, chosen.results)
    if campaign.grid.draw and there:
        for path in draw(table, there, chosen.results / "figures", campaign.name()):
            Console(stderr=True).print(f"written to {path}", highlight=False, markup=False, soft_wrap=True)
    failed = [one for one in done if one.error]
    if failed:
        reasons = sorted({done.error for done in failed})
        raise ValueError(f"{len(failed)} of {len(campaign.specs())} runs failed:\n" + "\n".join(reasons))


def show(table: Mapping[str, Any], form: str, console: Console) -> None:
    """Print a table, on the terminal or as text for a paper."""
    if form in FORMATS:
        console.print(FORMATS[form]([table]), end="", highlight=False, markup=False, soft_wrap=True)
        return
    console.print(grid_table(table))
    for name, stand_in in table["stand_ins"].items():
        console.print(f"{stand_in} stands in for {name}.", highlight=False, markup=False, soft_wrap=True)


def campaign_of(chosen: argparse.Namespace) -> Campaign:
    """Return the table with the choices made about it."""
    grid = find(chosen.name)
    if chosen.scale is not None and not 0 < chosen.scale <= 1:
        raise ValueError(f"--scale is a share above 0 and up to 1, got {chosen.scale}.")
    number = chosen.number if chosen.scale is None else round(chosen.scale * grid.number)
    given = ("model", "source", "batch_size", "restrict")
    changes = {name: value for name in given if (value := getattr(chosen, name)) is not None}
    return Campaign(
        grid,
        number=number,
        seeds=chosen.seeds,
        rows=chosen.methods,
        columns=chosen.columns,
        corruptions=chosen.corruptions,
        stand_ins=_pairs("--stand-in", chosen.stand_in),
        extra=_pairs("--also", chosen.also),
        changes=changes,
    )


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(name and data for name, _, data in pairs):
        raise ValueError(f"{flag} takes NAME=DATA, got {', '.join(texts)}.")
    return {name: data for name, _, data in pairs}


def run(campaign: Campaign, folder: Path, jobs: int) -> list[Done]:
    """Run what is not done, behind a bar."""
    specs, name = campaign.specs(), campaign.grid.name
    work = embed if campaign.grid.draw in EMBEDDED else engine.run
    under_way = execute(specs, folder / campaign.grid.folder, jobs=jobs, work=work)
    total = sum(cost(spec, campaign.grid.number) for spec in specs)
    return list(weighted(under_way, name, total, lambda one: cost(one.spec, campaign.grid.number)))


def _listing() -> Table:
    table = Table(title="Tables and figures of the paper", box=None)
    for column in ("name", "runs", "forward passes", "what", "needs", "lacks"):
        table.add_column(column, justify="right" if column in ("runs", "forward passes") else "left")
    for name, grid in paper().items():
        campaign = Campaign(grid)
        specs, lacks = campaign.specs(), campaign.missing_data()
        if grid.base.model not in models.names():
            lacks.append(f"a model, {grid.base.model}")
        passes = f"{sum(cost(spec, grid.number) for spec in specs) / 1e6:.1f} M"
        needs = ", ".join(campaign.data())
        what = f"{grid.label}, {grid.title}"
        table.add_row(name, str(len(specs)), passes, what, needs, ", ".join(lacks) or "nothing")
    return table
