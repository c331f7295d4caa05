"""A table as it is run here: which rows, corruptions and seeds, how many samples, what stands in for what."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final, final

from owttt._utils.suggest import suggest
from owttt.bench.records import Cell, Number, RunRecord
from owttt.bench.spec import RunSpec, unusual, usual
from owttt.bench.tables import Line, Table, changed
from owttt.data.catalog import catalog, data_root
from owttt.data.naming import DataName

_TOLD: Final = {"batch_size": "batches of {}", "restrict": "only the known set's classes"}


@final
@dataclass(frozen=True)
class Selection:
    """A table and the choices made about it.

    num_samples known samples per run; all there are if None
    stand_ins data sets to use in the place of others, by name: {"svhn": "npz:notmnist.npz"}
    methods   further methods as rows, which the paper does not have
    extra     unknown sets as further columns, which the paper does not have: {"dtd": "npz:dtd10_64.npz"}
    changes   of every run, e.g. another model
    """

    table: Table
    num_samples: int | None = None
    seeds: tuple[int, ...] = (0,)
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    corruptions: tuple[str, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for chosen, there in (
            (self.rows, [row.name for row in self._rows]),
            (self.columns, [column.name for column in self._columns]),
            (self.corruptions, self.table.corruptions),
        ):
            for name in chosen:
                if name not in there:
                    raise ValueError(f"{self.table.name} has no {name!r}. {suggest(name, there)}")
        for name in self.extra:
            if name in [column.name for column in self.table.columns]:
                raise ValueError(
                    f"{self.table.name} has a column {name!r}, whose published numbers are of other data; give the new "
                    "one another name, or use a stand-in."
                )
        if not self.seeds:
            raise ValueError("A table needs at least one seed.")

    def cells(self) -> dict[Cell, list[RunSpec]]:
        """Return the runs of every cell, for all seeds."""
        table = replace(self.table, corruptions=self.corruptions or self.table.corruptions)
        return {
            (row.name, column.name): [
                self._adjusted(spec, seed) for seed in self._seeds(row) for spec in table.cell(row, column)
            ]
            for row in self._chosen(self._rows, self.rows)
            for column in self._chosen(self._columns, self.columns)
            if table.published(row, column) != ()
        }

    def metrics(self, column: str) -> tuple[str, ...]:
        """Return what is measured in a column."""
        own = next(line.metrics for line in self._columns if line.name == column)
        return own or self.table.metrics

    def about(self) -> str:
        """Say what was run, in words: numbers of a part are not those of the whole."""
        known = self.table.base.stream.known
        told = [PurePath(self.changes.get("model", self.table.base.model)).name]
        if known in self.stand_ins:
            told.append(f"{_short(self.stand_ins[known])} for {known}")
        told.append(
            "all known samples per run" if self.num_samples is None else f"{self.num_samples:,} known samples per run"
        )
        if self.corruptions:
            theirs = (
                " + ".join(self.table.corruptions) if self.table.mixed else f"mean of {len(self.table.corruptions)}"
            )
            told.append(f"{', '.join(self.corruptions)} only (the paper: {theirs})")
        told += [text.format(self.changes[name]) for name, text in _TOLD.items() if self.changes.get(name)]
        seeds = sorted({seed for row in self._chosen(self._rows, self.rows) for seed in self._seeds(row)})
        told.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")
        return ", ".join(told)

    def specs(self) -> list[RunSpec]:
        """Return every run once."""
        return list({run.digest: run for runs in self.cells().values() for run in runs}.values())

    def data(self) -> list[str]:
        """Return the data sets that are needed."""
        return sorted({name.plain for run in self.specs() for name in run.stream.data_names})

    def missing_data(self) -> list[str]:
        """Return the data sets of the catalog that are needed and not there."""
        root = data_root()
        return [name for name in self.data() if name in catalog() and catalog()[name].missing(root)]

    def heading(self, column: str) -> str:
        """Return a column's name with what stands in for its data."""
        line = next(line for line in self._columns if line.name == column)
        plain = [DataName.parse(name).plain for name in line.changes["unknown"]]
        used = [f"{_short(self.stand_ins[name])} for {name}" for name in plain if name in self.stand_ins]
        if not used:
            return column
        return used[0] if DataName.parse(column).plain in plain else f"{column} ({', '.join(used)})"

    def published(self, cell: Cell) -> tuple[float, ...] | None:
        """Return the paper's numbers of a cell, if it prints any."""
        row = next(line for line in self._rows if line.name == cell[0])
        column = next(line for line in self._columns if line.name == cell[1])
        return self.table.published(row, column)

    def name(self) -> str:
        """Return a name for what comes of it: other choices make another table and do not replace this one."""
        first = ("num_samples", "seeds", "rows", "columns", "corruptions", "stand_ins", "extra", "changes")
        choices = [repr(getattr(self, name)) for name in first]
        choices += [f"{name}={value!r}" for name, value in unusual(self).items() if name not in (*first, "table")]
        return f"{self.table.name}-{hashlib.sha256(' '.join(choices).encode()).hexdigest()[:8]}"

    @property
    def _rows(self) -> tuple[Line, ...]:
        return (*self.table.rows, *(Line(name, usual(name, self.table.base.preset)) for name in self.methods))

    @property
    def _columns(self) -> tuple[Line, ...]:
        return (*self.table.columns, *(Line(name, {"unknown": (data,)}) for name, data in self.extra.items()))

    def _seeds(self, row: Line) -> tuple[int, ...]:
        """Return the seeds of a row; one that has a seed of its own is about just that one."""
        return (row.changes["seed"],) if "seed" in row.changes else self.seeds

    def _adjusted(self, spec: RunSpec, seed: int) -> RunSpec:
        known, unknown = self._stand_in(spec.stream.known), map(self._stand_in, spec.stream.unknown)
        stream = {
            "known": known,
            "unknown": tuple(unknown),
            "seed": seed,
            "num_samples": self.num_samples,
            "repeat": True,
        }
        return changed(spec, {**stream, **self.changes})

    def _stand_in(self, name: str) -> str:
        """Return what is used for a data set; a stand-in is corrupted as the other would be."""
        data = DataName.parse(name)
        return str(data.instead(self.stand_ins[data.plain])) if data.plain in self.stand_ins else name

    @staticmethod
    def _chosen(lines: Sequence[Line], names: Sequence[str]) -> list[Line]:
        return [line for line in lines if not names or line.name in names]


def _short(data: str) -> str:
    return DataName.parse(data).short


@final
@dataclass(frozen=True)
class Summary:
    """A cell's numbers: mean and deviation over the seeds for every metric, in percent."""

    mean: tuple[Number, ...]
    deviation: tuple[Number, ...]
    """None where there is one seed only."""
    seeds: dict[int, tuple[Number, ...]]
    """The numbers of every seed, means over its corruptions."""


def summarize(records: Sequence[RunRecord], metrics: Sequence[str]) -> Summary:
    """Average a cell's records: over the corruptions of each seed, then over the seeds."""
    seeds: dict[int, list[Mapping[str, Number]]] = {}
    for record in records:
        seeds.setdefault(record["spec"]["stream"]["seed"], []).append(record["metrics"])
    by_seed = {
        seed: tuple(_mean([values.get(name) for values in group], 100) for name in metrics)
        for seed, group in seeds.items()
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
