"""The picture at the top of the README: Table 1 of the paper, three of its methods and our default.

    python benchmarks/headline.py docs/results docs/means.png

Reads the records of `owttt bench table1` and of `owttt bench --file benchmarks/deployed.toml deployed` (unpack the zip
files of docs/results first); nothing is run.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from owttt.bench.figures import by_corruption
from owttt.bench.records import RunRecord, read_runs
from owttt.bench.spec import paper_preset
from owttt.methods import METHODS
from owttt.types import PREDICT_THEN_ADAPT

MODEL, KNOWN = "cifar10-resnet11", "cifar10"
PAPER = {"test": "test, the unchanged model", "bn": "bn", "owttt": "owttt, the paper's"}
OURS = "owttt+, the default"


def row_of(run: RunRecord) -> str | None:
    """Return the row that a run is of, None if it is of no row."""
    spec, stream = run["spec"], run["spec"]["stream"]
    if spec["model"] != MODEL or stream["seed"] != 0 or stream["num_samples"] or len(stream["unknown"]) != 1:
        return None
    if len(stream["corruptions"]) != 1 or stream["ratio"] != 1 or spec["embed"]:
        return None
    if spec["options"] or spec["order"] != PREDICT_THEN_ADAPT:
        return None
    how = (spec["preset"], spec["threshold"])
    if spec["method"] == "owttt+":
        newest = run["fingerprints"].get("method", 1) == METHODS["owttt+"].version
        return OURS if newest and how == (None, "evidence") else None
    return PAPER.get(spec["method"]) if how == (paper_preset(MODEL, KNOWN), "adaptive") else None


def main() -> None:
    """Read, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a folder with the records")
    parser.add_argument("picture", type=Path, help="what to write")
    chosen = parser.parse_args()
    rows: dict[str, list[RunRecord]] = defaultdict(list)
    for _, run in read_runs(chosen.results):
        if (row := row_of(run)) is not None:
            rows[row].append(run)
    by_corruption({name: rows[name] for name in (*PAPER.values(), OURS) if name in rows}, chosen.picture)


if __name__ == "__main__":
    main()
