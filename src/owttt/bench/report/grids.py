"""A table as the page lays it out: numbers with their marks, what differs by more than chance, heat maps."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from owttt.bench.compare import Gap, below, gaps, ranks
from owttt.bench.records import COSTS, Cell, CellRecord, TableRecord, cells_of, metric_name, row_mean
from owttt.bench.report.contents import TableContent
from owttt.bench.text import numbers, ours_of

HEATS: Final = 20
"""The hottest of the classes `heat-0`, `heat-1`, … that the style sheet has a color for each of."""


@final
@dataclass(frozen=True)
class Heading:
    """The head of a column: what it is of, and what its numbers are."""

    name: str
    metrics: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Shown:
    """A cell: a text, one below it in small letters, and the classes that mark it."""

    text: str = ""
    small: str = ""
    marks: str = ""


@final
@dataclass(frozen=True)
class Row:
    """A row: its name, whether the table is about it, and its cells."""

    name: str
    cells: list[Shown]
    strong: bool = False


@final
@dataclass(frozen=True)
class Grid:
    """Rows below headings."""

    headings: list[Heading]
    rows: list[Row]
    baseline: str = ""
    """The row that some cells are behind, if any are."""
    seeds: str = ""
    """How many seeds differences are of, if there are several."""


@final
@dataclass(frozen=True)
class HeatMap:
    """A metric of one column, by row and corruption."""

    column: str
    metric: str
    grid: Grid


def number_grid(table: TableContent) -> Grid:
    """Return the table: ours and below them the published numbers; what it costs in the last columns."""
    record, cells, place, gap = table.record, cells_of(table.record), ranks(table.record), gaps(table.record)
    lost = below(record, table.baseline)
    rows = []
    for row in record["rows"]:
        keys = [(row, column) for column in record["columns"]]
        shown = [_number(cells.get(key), place.get(key), gap.get(key), lost=key in lost) for key in keys]
        costs = [Shown(numbers([row_mean(record, row, metric)])) for metric in COSTS]
        rows.append(Row(row, shown + costs, row == record.get("highlight")))
    headings = [*_headings(record, metrics=True), *(Heading(metric_name(metric)) for metric in COSTS)]
    return Grid(headings, rows, table.baseline if lost else "", _seeds(gap.values()))


def _headings(record: TableRecord, *, metrics: bool = False) -> list[Heading]:
    return [
        Heading(record["headings"][column], tuple(map(metric_name, record["metrics"][column])) if metrics else ())
        for column in record["columns"]
    ]


def _number(cell: CellRecord | None, rank: int | None, gap: Gap | None, *, lost: bool) -> Shown:
    if cell is None:
        return Shown()
    marks = (("best", rank == 1), ("second", rank == 2), ("below", lost))
    published = numbers(cell["published"]) if cell["published"] else ""
    return Shown(ours_of(cell, gap), published, " ".join(name for name, there in marks if there))


def _seeds(found: Iterable[Gap]) -> str:
    return ", ".join(sorted({str(gap.seeds) for gap in found}))


def gap_grid(record: TableRecord) -> Grid | None:
    """Return how far every cell is behind the best of its column; None where one seed is all there is."""
    gap, place = gaps(record), ranks(record)
    if not gap:
        return None
    rows = []
    for row in record["rows"]:
        keys = [(row, column) for column in record["columns"]]
        rows.append(Row(row, [_gap(gap.get(key), best=place.get(key) == 1) for key in keys]))
    return Grid(_headings(record), rows, seeds=_seeds(gap.values()))


def _gap(gap: Gap | None, *, best: bool) -> Shown:
    if gap is None:
        return Shown("best" if best else "")
    return Shown(f"{gap.behind:.1f} ±{gap.deviation:.1f}", marks="best" if gap.exceeds else "")


def heat_maps(record: TableRecord) -> list[HeatMap]:
    """Return for every column its last metric by row and corruption, where there are several corruptions."""
    maps = []
    for column in record["columns"]:
        metric = record["metrics"][column][-1]
        values = _by_corruption(record, column, metric)
        corruptions = list(dict.fromkeys(corruption for _, corruption in values))
        if len(corruptions) > 1:
            rows = [Row(row, [_heat(values.get((row, one))) for one in corruptions]) for row in record["rows"]]
            grid = Grid([Heading(one.replace("_", " ")) for one in corruptions], rows)
            maps.append(HeatMap(record["headings"][column], metric_name(metric), grid))
    return maps


def _by_corruption(record: TableRecord, column: str, metric: str) -> dict[Cell, list[float]]:
    values: dict[Cell, list[float]] = {}
    for cell in record["cells"]:
        for run in cell["runs"]:
            share = run.get("metrics", {}).get(metric)
            if cell["column"] == column and len(run["corruptions"]) == 1 and share is not None:
                values.setdefault((cell["row"], run["corruptions"][0]), []).append(100 * share)
    return values


def _heat(values: Sequence[float] | None) -> Shown:
    if not values:
        return Shown()
    mean = statistics.fmean(values)
    return Shown(f"{mean:.1f}", marks=f"heat-{min(HEATS, max(0, round(mean / 100 * HEATS)))}")
