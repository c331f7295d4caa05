"""What the results say, computed: mean numbers of a table's rows against its baseline, as sentences and as a chart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from owttt.bench.compare import below
from owttt.bench.records import Cell, cells_of, metric_name, row_mean
from owttt.bench.report.contents import TableContent
from owttt.bench.report.viewer import table_colors
from owttt.bench.report.wording import anchor, signed

PANEL, LINE, NAMES, NUMBERS = 200, 20, 56, 46
"""Size of a panel of the chart: its width, the height of a bar, and room for names and for numbers."""
LONGEST_NAME: Final = 9


@final
@dataclass(frozen=True)
class Standing:
    """How a row fares: its mean, its mean gain over the baseline, and in how many cells it is behind."""

    row: str
    mean: str
    gain: float
    behind: int
    rejected: str
    """Share of known samples it rejects; empty where that was not recorded."""

    @property
    def compared(self) -> str:
        """The gain in words."""
        if round(self.gain, 1) == 0:
            return "level with"
        return f"{abs(self.gain):.1f} {'above' if self.gain >= 0 else 'below'}"


@final
@dataclass(frozen=True)
class Bar:
    """A bar of the chart, in the units of its panel."""

    row: str
    name: str
    gain: str
    color: str
    x: float
    y: int
    width: float


@final
@dataclass(frozen=True)
class Panel:
    """The gain of every row in one column, or the mean over all columns."""

    title: str
    bars: list[Bar]
    zero: float
    height: int


@final
@dataclass(frozen=True)
class Summary:
    """A table in a few sentences and one chart."""

    title: str
    anchor: str
    about: str
    metric: str
    columns: list[str]
    lead: Standing | None
    """The row that the table is about."""
    baseline: Standing
    ranking: list[Standing]
    """All rows that have a number in every column, the highest mean first."""
    partial: list[str]
    """Rows that have not."""
    seeds: int
    panels: list[Panel]


def summary(tables: Sequence[TableContent]) -> Summary | None:
    """Return what the first table with a baseline says; None if there is none."""
    for table in tables:
        columns = _columns(table) if table.baseline else []
        if columns:
            return _summary(table, columns)
    return None


def _columns(table: TableContent) -> list[str]:
    """Return the columns in which the baseline has a number, of those that end with the first one's metric."""
    record, values = table.record, _values(table)
    metrics = {column: record["metrics"][column][-1] for column in record["columns"]}
    first = next(iter(metrics.values()), "")
    return [column for column, metric in metrics.items() if metric == first and (table.baseline, column) in values]


def _values(table: TableContent) -> dict[Cell, float]:
    """Return the last metric of every cell that has one."""
    means = {key: cell["mean"] for key, cell in cells_of(table.record).items()}
    return {key: mean[-1] for key, mean in means.items() if mean and mean[-1] is not None}


def _summary(table: TableContent, columns: list[str]) -> Summary:
    record, values = table.record, _values(table)
    whole = [row for row in record["rows"] if all((row, column) in values for column in columns)]
    standings = {row: _standing(table, row, columns) for row in whole}
    return Summary(
        title=table.title,
        anchor=anchor(table.name),
        about=record["about"],
        metric=metric_name(record["metrics"][columns[0]][-1]),
        columns=[record["headings"][column] for column in columns],
        lead=standings.get(table.highlight) if table.highlight != table.baseline else None,
        baseline=standings[table.baseline],
        ranking=sorted(standings.values(), key=lambda one: one.gain, reverse=True),
        partial=[row for row in record["rows"] if row not in whole],
        seeds=len(record["seeds"]),
        panels=_panels(table, [row for row in whole if row != table.baseline], columns),
    )


def _standing(table: TableContent, row: str, columns: Sequence[str]) -> Standing:
    values = _values(table)
    lost = below(table.record, table.baseline)
    mean = statistics.fmean(values[row, column] for column in columns)
    least = statistics.fmean(values[table.baseline, column] for column in columns)
    rejected = row_mean(table.record, row, "known_rejected")
    behind = sum((row, column) in lost for column in columns)
    return Standing(row, f"{mean:.1f}", mean - least, behind, "" if rejected is None else f"{rejected:.1f}")


def _panels(table: TableContent, rows: Sequence[str], columns: Sequence[str]) -> list[Panel]:
    """Return a panel for the mean and one for every column, all of one scale."""
    values = _values(table)
    gains = {column: [values[row, column] - values[table.baseline, column] for row in rows] for column in columns}
    every = [gain for some in gains.values() for gain in some]
    low, high = min(0.0, *every), max(1.0, *every)
    names = {column: table.record["headings"][column] for column in columns}
    means = [statistics.fmean(some) for some in zip(*gains.values(), strict=True)]
    titled = [("mean", means), *((names[column], some) for column, some in gains.items())] if rows else []
    colors = table_colors(table)
    return [_panel(title, dict(zip(rows, some, strict=True)), colors, (low, high)) for title, some in titled]


def _panel(title: str, gains: dict[str, float], colors: dict[str, str], limits: tuple[float, float]) -> Panel:
    low, high = limits
    scale = (PANEL - NAMES - NUMBERS) / (high - low)
    zero = NAMES - low * scale
    bars = [
        Bar(
            row=row,
            name=row if len(row) <= LONGEST_NAME else f"{row[: LONGEST_NAME - 1]}…",
            gain=signed(gain),
            color=colors[row],
            x=round(zero + min(0.0, gain) * scale, 1),
            y=LINE * number,
            width=round(max(0.5, abs(gain) * scale), 1),
        )
        for number, (row, gain) in enumerate(gains.items())
    ]
    return Panel(title, bars, round(zero, 1), LINE * len(gains))
