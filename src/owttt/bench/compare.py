"""Which differences mean something: those larger than they vary from seed to seed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from owttt.bench.records import Cell, Number, TableRecord, cells_of


@final
@dataclass(frozen=True)
class Gap:
    """How far a cell is behind the best of its column: mean and deviation of the difference, over so many seeds."""

    behind: float
    deviation: float
    seeds: int

    @property
    def exceeds(self) -> bool:
        """Whether the difference is larger than its deviation."""
        return abs(self.behind) > self.deviation


def ranks(table: TableRecord) -> dict[Cell, int]:
    """Return the place of every cell in its column by its last metric, 1 for the best; a tie shares it."""
    values = {cell: _last(content["mean"]) for cell, content in cells_of(table).items()}
    result = {}
    for (row, column), value in values.items():
        if value is not None:
            rivals = {one for (_, other), one in values.items() if other == column and one is not None}
            result[row, column] = 1 + sorted(rivals, reverse=True).index(value)
    return result


def gaps(table: TableRecord) -> dict[Cell, Gap]:
    """Return how far each cell is behind the best of its column, where both have two seeds in common.

    Differences are taken seed by seed: two methods that meet the same streams vary together, and their difference
    varies less than either.
    """
    cells, place = cells_of(table), ranks(table)
    best = {column: cells[row, column] for (row, column), rank in place.items() if rank == 1}
    result = {}
    for row, column in place:
        if cells[row, column] is not best[column]:
            differences = _differences(best[column]["seeds"], cells[row, column]["seeds"])
            if len(differences) > 1:
                deviation = statistics.stdev(differences)
                result[row, column] = Gap(statistics.fmean(differences), deviation, len(differences))
    return result


def below(table: TableRecord, baseline: str) -> set[Cell]:
    """Return the cells whose last metric is less than that of the row `baseline` in their column."""
    values = {cell: _last(content["mean"]) for cell, content in cells_of(table).items()}
    return {
        (row, column)
        for (row, column), value in values.items()
        if value is not None and (least := values.get((baseline, column))) is not None and value < least
    }


def _last(values: Sequence[Number] | None) -> Number:
    return values[-1] if values else None


def _differences(one: Mapping[str, Sequence[Number]], other: Mapping[str, Sequence[Number]]) -> list[float]:
    pairs = [(one[seed][-1], other[seed][-1]) for seed in one if seed in other]
    return [first - second for first, second in pairs if first is not None and second is not None]
