"""A table as it is run here: which rows, corruptions and seeds, how many samples, what stands in for what."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath
from typing import Any, Final, final

from owttt._utils.suggest import suggest
from owttt.bench.spec import RunSpec
from owttt.bench.tables import Grid, Line, changed
from owttt.data.catalog import catalog, data_root

Cell = tuple[str, str]
"""Row and column."""
Number = float | None
"""A metric, None where there is nothing to measure it on."""

_TOLD: Final = {"batch_size": "batches of {}", "restrict": "only the known set's classes"}


@final
@dataclass(frozen=True)
class Campaign:
    """A grid and the choices made about it.

    number    known samples a run; the paper's if None
    stand_ins data sets to use in the place of others, by name: {"svhn": "npz:notmnist.npz"}
    extra     unknown sets as further columns, which the paper does not have: {"dtd": "npz:dtd10_64.npz"}
    changes   of every run, e.g. another model
    """

    grid: Grid
    number: int | None = None
    seeds: tuple[int, ...] = (0,)
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    corruptions: tuple[str, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for chosen, there in (
            (self.rows, [row.name for row in self.grid.rows]),
            (self.columns, [column.name for column in self._columns]),
            (self.corruptions, self.grid.corruptions),
        ):
            for name in chosen:
                if name not in there:
                    raise ValueError(f"{self.grid.name} has no {name!r}. {suggest(name, there)}")
        for name in self.extra:
            if name in [column.name for column in self.grid.columns]:
                raise ValueError(
                    f"{self.grid.name} has a column {name!r}, whose published numbers are of other data; give the new "
                    "one another name, or use a stand-in."
                )
        if not self.seeds:
            raise ValueError("A campaign needs at least one seed.")

    def cells(self) -> dict[Cell, list[RunSpec]]:
        """Return the runs of every cell, for all seeds."""
        grid = replace(self.grid, corruptions=self.corruptions or self.grid.corruptions)
        return {
            (row.name, column.name): [
                self._adjusted(spec, seed) for seed in self._seeds(row) for spec in grid.cell(row, column)
            ]
            for row in self._chosen(grid.rows, self.rows)
            for column in self._chosen(self._columns, self.columns)
            if grid.published(row, column) != ()
        }

    def metrics(self, column: str) -> tuple[str, ...]:
        """Return what is measured in a column."""
        own = next(line.metrics for line in self._columns if line.name == column)
        return own or self.grid.metrics

    def about(self) -> str:
        """Say what was run, in words: numbers of a part are not those of the whole."""
        known = self.grid.base.stream.known
        told = [PurePath(self.changes.get("model", self.grid.base.model)).name]
        if known in self.stand_ins:
            told.append(f"{short(self.stand_ins[known])} for {known}")
        told.append("all known samples a run" if self.number is None else f"{self.number:,} known samples a run")
        if self.corruptions:
            theirs = " + ".join(self.grid.corruptions) if self.grid.mixed else f"mean of {len(self.grid.corruptions)}"
            told.append(f"{', '.join(self.corruptions)} only (the paper: {theirs})")
        told += [text.format(self.changes[name]) for name, text in _TOLD.items() if self.changes.get(name)]
        seeds = sorted({seed for row in self._chosen(self.grid.rows, self.rows) for seed in self._seeds(row)})
        told.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")
        return ", ".join(told)

    def specs(self) -> list[RunSpec]:
        """Return every run once."""
        return list({run.digest: run for runs in self.cells().values() for run in runs}.values())

    def data(self) -> list[str]:
        """Return the data sets that are needed."""
        return sorted(
            {name.partition("@")[0] for run in self.specs() for name in (run.stream.known, *run.stream.unknown)}
        )

    def missing_data(self) -> list[str]:
        """Return the data sets of the catalog that are needed and not there."""
        root = data_root()
        return [name for name in self.data() if name in catalog() and catalog()[name].missing(root)]

    def heading(self, column: str) -> str:
        """Return a column's name with what stands in for its data."""
        line = next(line for line in self._columns if line.name == column)
        plain = [name.partition("@")[0] for name in line.changes["unknown"]]
        used = [f"{short(self.stand_ins[name])} for {name}" for name in plain if name in self.stand_ins]
        if not used:
            return column
        return used[0] if column.partition("@")[0] in plain else f"{column} ({', '.join(used)})"

    def published(self, cell: Cell) -> tuple[float, ...] | None:
        """Return the paper's numbers of a cell, if it prints any."""
        row = next(line for line in self.grid.rows if line.name == cell[0])
        column = next(line for line in self._columns if line.name == cell[1])
        return self.grid.published(row, column)

    def name(self) -> str:
        """Return a name for what comes of it: other choices make another table and do not replace this one."""
        choices = [repr(getattr(self, field.name)) for field in fields(self) if field.name != "grid"]
        return f"{self.grid.name}-{hashlib.sha256(' '.join(choices).encode()).hexdigest()[:8]}"

    @property
    def _columns(self) -> tuple[Line, ...]:
        return (*self.grid.columns, *(Line(name, {"unknown": (data,)}) for name, data in self.extra.items()))

    def _seeds(self, row: Line) -> tuple[int, ...]:
        """Return the seeds of a row; one that has a seed of its own is about just that one."""
        return (row.changes["seed"],) if "seed" in row.changes else self.seeds

    def _adjusted(self, spec: RunSpec, seed: int) -> RunSpec:
        known, unknown = self._stand_in(spec.stream.known), map(self._stand_in, spec.stream.unknown)
        stream = {"known": known, "unknown": tuple(unknown), "seed": seed, "number": self.number, "repeat": True}
        return changed(spec, {**stream, **self.changes})

    def _stand_in(self, name: str) -> str:
        """Return what is used for a data set; a stand-in is corrupted as the other would be."""
        plain, at, corruption = name.partition("@")
        return f"{self.stand_ins[plain]}{at}{corruption}" if plain in self.stand_ins else name

    @staticmethod
    def _chosen(lines: Sequence[Line], names: Sequence[str]) -> list[Line]:
        return [line for line in lines if not names or line.name in names]


def short(data: str) -> str:
    """Return a data set's name without form, folder and ending: npz:somewhere/letters.npz is letters."""
    form, _, path = data.partition(":")
    return path.rstrip("/").rpartition("/")[2].removesuffix(f".{form}") if path else data


@final
@dataclass(frozen=True)
class Summary:
    """A cell's numbers: mean and deviation over the seeds for every metric, in percent."""

    mean: tuple[Number, ...]
    deviation: tuple[Number, ...]
    """None where there is one seed only."""
    seeds: dict[int, tuple[Number, ...]]
    """The numbers of every seed, means over its corruptions."""


def summarize(records: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> Summary:
    """Average a cell's records: over the corruptions of each seed, then over the seeds."""
    seeds: dict[int, list[Mapping[str, Any]]] = {}
    for record in records:
        seeds.setdefault(record["spec"]["stream"]["seed"], []).append(record["metrics"])
    by_seed = {
        seed: tuple(_mean([values[name] for values in group], 100) for name in metrics) for seed, group in seeds.items()
    }
    columns = list(zip(*by_seed.values(), strict=True))
    return Summary(
        mean=tuple(map(_mean, columns)),
        deviation=tuple(map(_deviation, columns)),
        seeds=by_seed,
    )


def _mean(values: Sequence[Number], scale: float = 1.0) -> Number:
    there = [value for value in values if value is not None and math.isfinite(value)]
    return scale * statistics.fmean(there) if len(there) == len(values) else None


def _deviation(values: Sequence[Number]) -> Number:
    there = [value for value in values if value is not None]
    return statistics.stdev(there) if len(there) == len(values) > 1 else None
