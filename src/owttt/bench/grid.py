"""The paper's tables as grids of runs, with the numbers it prints: read from `paper.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, final

from owttt.bench.spec import RunSpec, paper_preset, with_paper_batches
from owttt.data.registry import corruptions_of
from owttt.data.stream_spec import StreamSpec
from owttt.names import nearest

METRICS: Final = ("acc_s", "acc_n", "acc_h")
PAPER_NUMBER: Final = 10_000
"""Known samples of a run on the CIFAR benchmarks."""

_STREAM_FIELDS: Final = frozenset(field.name for field in fields(StreamSpec))
_SAME: Final = "@same"


@final
@dataclass(frozen=True)
class Line:
    """A row or a column: a name, and what it changes about a run."""

    name: str
    changes: Mapping[str, Any]
    published: tuple[tuple[float, ...], ...] = ()
    """The paper's numbers, for each column the metrics; empty for columns."""


@final
@dataclass(frozen=True)
class Grid:
    """A table: rows × columns of cells, each of one run or of one for every corruption."""

    name: str
    title: str
    label: str
    base: RunSpec
    corruptions: tuple[str, ...]
    mixed: bool
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    metrics: tuple[str, ...]
    number: int
    """Known samples of a run in the paper."""

    def cell(self, row: Line, column: Line) -> list[RunSpec]:
        """Return the runs whose mean a cell is."""
        changes = {**column.changes, **row.changes}
        apart: list[tuple[str, ...]] = [(name,) for name in self.corruptions] if not self.mixed else []
        return [changed(self.base, _under(changes, names)) for names in apart or [self.corruptions]]


@cache
def paper() -> dict[str, Grid]:
    """Return every table of the paper."""
    text = Path(__file__).with_name("paper.toml").read_text(encoding="utf-8")
    return {name: _grid(name, fields) for name, fields in tomllib.loads(text).items()}


def find(name: str) -> Grid:
    """Return a table by name."""
    if name not in paper():
        raise ValueError(f"No table {name!r}. {nearest(name, paper())}")
    return paper()[name]


def changed(spec: RunSpec, changes: Mapping[str, Any]) -> RunSpec:
    """Return a run with some parts changed, be they the run's own or its stream's."""
    stream = {name: value for name, value in changes.items() if name in _STREAM_FIELDS}
    own = {name: value for name, value in changes.items() if name not in _STREAM_FIELDS}
    return replace(spec, stream=replace(spec.stream, **stream), **own)


def _under(changes: Mapping[str, Any], corruptions: tuple[str, ...]) -> dict[str, Any]:
    """Add corruptions to the changes; unknown sets "@same" are under the same one."""
    unknown = changes.get("unknown", ())
    same = tuple(f"{n.removesuffix(_SAME)}@{corruptions[0]}" if n.endswith(_SAME) else n for n in unknown)
    return {**changes, "corruptions": corruptions, "unknown": same}


def _grid(name: str, content: Mapping[str, Any]) -> Grid:
    model, known = content["model"], content["known"]
    stream = StreamSpec(known=known)
    base = RunSpec(model, stream, preset=paper_preset(model, known), restrict=content.get("restrict", False))
    corruptions = content["corruptions"]
    return Grid(
        name=name,
        title=content["title"],
        label=content["label"],
        base=with_paper_batches(base),
        corruptions=corruptions_of(known)[:15] if corruptions == ["all"] else tuple(corruptions),
        mixed=content.get("mixed", False),
        rows=tuple(_line(row, "method") for row in content["rows"]),
        columns=tuple(_line(column, "unknown") for column in content["columns"]),
        metrics=tuple(content.get("metrics", METRICS)),
        number=content.get("number", PAPER_NUMBER),
    )


def _line(content: str | Mapping[str, Any], field: str) -> Line:
    if isinstance(content, str):
        return Line(content, {field: (content,) if field == "unknown" else content})
    changes = {name: _tuple(value) for name, value in content.items() if name not in ("name", "published")}
    return Line(content["name"], changes, tuple(tuple(numbers) for numbers in content.get("published", ())))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
