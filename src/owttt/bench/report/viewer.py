"""What the page's script draws: curves and scores of runs, made small, and the colors of their rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NotRequired, TypedDict

from owttt.bench.records import Number, PlacedRun, RunRecord, ScoresRecord, corruption_of
from owttt.bench.report.contents import TableContent
from owttt.bench.report.wording import plain

SHOWN: Final = "snow"
"""The corruption whose scores the page keeps, where a table has several: those of all are megabytes."""
PALETTE: Final = (
    "#d6432f", "#3f7fbf", "#5aa469", "#e0a43b", "#b07cc6", "#45b3b3", "#8a5a44", "#d16ba5", "#7f868e", "#a3b846",
)  # fmt: skip
"""Colors of rows whose methods have none, or have the same."""
_COLOR: Final = re.compile(r"#[0-9a-fA-F]{6}")


class ViewedRun(TypedDict):
    """What the script needs to know of a run."""

    row: str
    column: str
    corruption: str
    curve: list[Number]
    threshold: list[Number]
    scores: NotRequired[ScoresRecord]


class View(TypedDict):
    """Runs that are seen side by side, the headings of their columns, the colors of rows, and the row to draw bold."""

    runs: list[ViewedRun]
    headings: dict[str, str]
    colors: dict[str, str]
    highlight: str


def table_view(table: TableContent) -> View:
    """Return what the script needs of a table; of the scores those under one corruption."""
    met = list(dict.fromkeys(corruption_of(placed["run"]) for placed in table.runs))
    shown = SHOWN if SHOWN in met else next(iter(met), "")
    runs = [
        _small(placed["row"], placed["column"], placed["run"], scores=corruption_of(placed["run"]) == shown)
        for placed in table.runs
    ]
    headings = table.record["headings"]
    return {"runs": runs, "headings": headings, "colors": table_colors(table), "highlight": table.highlight}


def group_view(runs: Mapping[str, RunRecord]) -> View:
    """Return what the script needs of runs on one stream, by the names of their rows."""
    viewed = [_small(row, "", run, scores=True) for row, run in runs.items()]
    colors = distinct({row: _own_color(run) for row, run in runs.items()})
    return {"runs": viewed, "headings": {}, "colors": colors, "highlight": ""}


def table_colors(table: TableContent) -> dict[str, str]:
    """Return the color of every row: its method's, as the table or one of its runs tells."""
    given = {placed["row"]: _own_color(placed["run"]) for placed in table.runs}
    told = table.record.get("colors", {})
    return distinct({row: told.get(row) or given.get(row) for row in table.record["rows"]})


def distinct(given: Mapping[str, str | None]) -> dict[str, str]:
    """Return a color for every row: its own, unless it has none or a row before it has the same."""
    result: dict[str, str] = {}
    for row, own in given.items():
        taken = {*result.values(), *given.values()}
        free = next((color for color in PALETTE if color not in taken), PALETTE[len(result) % len(PALETTE)])
        usable = own is not None and _COLOR.fullmatch(own) and own not in result.values()
        result[row] = own if own and usable else free
    return result


def seen_by(runs: Sequence[PlacedRun]) -> list[PlacedRun]:
    """Return runs with those under the corruption that pages show first."""
    return sorted(runs, key=lambda placed: corruption_of(placed["run"]) != SHOWN)


def _small(row: str, column: str, run: RunRecord, *, scores: bool) -> ViewedRun:
    small: ViewedRun = {
        "row": row,
        "column": column,
        "corruption": plain(f"{corruption_of(run)}, seed {run['spec']['stream']['seed']}"),
        "curve": _rounded(run["curves"]["acc_h"], 4),
        "threshold": _rounded(run["curves"]["threshold"], 3),
    }
    return {**small, "scores": run["scores"]} if scores else small


def _own_color(run: RunRecord) -> str | None:
    return run["method"]["color"] if "method" in run else None


def _rounded(values: Iterable[Number], digits: int) -> list[Number]:
    return [None if value is None else round(value, digits) for value in values]
