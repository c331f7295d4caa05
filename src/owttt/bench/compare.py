"""Which differences mean something: those larger than they vary from seed to seed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from owttt.bench.campaign import Cell
from owttt.bench.manifest import cells_of

Record = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Gap:
    """How far a cell is behind the best of its column: mean and deviation of the difference, seed by seed."""

    behind: float
    deviation: float

    @property
    def exceeds(self) -> bool:
        """Whether the difference is larger than its deviation."""
        return abs(self.behind) > self.deviation


def ranks(manifest: Record) -> dict[Cell, int]:
    """Return the place of every cell in its column by its last metric, 1 for the best; a tie shares it."""
    cells = {cell: content for cell, content in cells_of(manifest).items() if content["mean"]}
    result = {}
    for (row, column), content in cells.items():
        rivals = {one["mean"][-1] for (_, other), one in cells.items() if other == column}
        result[row, column] = 1 + sorted(rivals, reverse=True).index(content["mean"][-1])
    return result


def gaps(manifest: Record) -> dict[Cell, Gap]:
    """Return how far each cell is behind the best of its column, where both have two seeds in common.

    Differences are taken seed by seed: two methods that meet the same streams vary together, and their difference
    varies less than either.
    """
    cells, place = cells_of(manifest), ranks(manifest)
    best = {column: cells[row, column] for (row, column), rank in place.items() if rank == 1}
    result = {}
    for (row, column), cell in cells.items():
        if cell["mean"] is None or cell is best[column]:
            continue
        differences = _differences(best[column]["seeds"], cell["seeds"])
        if len(differences) > 1:
            result[row, column] = Gap(statistics.fmean(differences), statistics.stdev(differences))
    return result


def _differences(one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]]) -> list[float]:
    return [one[seed][-1] - other[seed][-1] for seed in one if seed in other]
