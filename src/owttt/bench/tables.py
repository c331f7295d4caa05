"""The paper's tables and figures as grids of runs, with the numbers it prints: read from `paper.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, final

from owttt._utils.suggest import suggest
from owttt.bench.spec import RunSpec, paper_preset, with_paper_batches
from owttt.data.registry import corruptions_of
from owttt.data.streams.spec import StreamSpec

METRICS: Final = ("acc_s", "acc_n", "acc_h")
PAPER_NUMBER: Final = 10_000
"""Known samples of a run on the CIFAR benchmarks."""

EMBEDDED: Final = frozenset({"classes", "verdicts", "stages"})
"""The kinds of pictures that need embeddings of the features."""

_STREAM_FIELDS: Final = frozenset(field.name for field in fields(StreamSpec))
_SAME: Final = "@same"


@final
@dataclass(frozen=True)
class Line:
    """A row or a column: a name, and what it changes about a run."""

    name: str
    changes: Mapping[str, Any]
    published: tuple[tuple[float, ...], ...] = ()
    """A row's numbers in the paper, for each column the metrics; an empty one is a cell that does not exist."""
    metrics: tuple[str, ...] = ()
    """A column's, where they are not the table's."""


@final
@dataclass(frozen=True)
class Grid:
    """A table, or what a figure shows: rows × columns of cells, each of one run or of one for every corruption."""

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
    draw: str = ""
    """What kind of picture it is, a name in `figures.DRAW`; empty for a table."""

    @property
    def folder(self) -> str:
        """Where in a results folder its runs are: those with an embedding are apart."""
        return "embeddings" if self.draw in EMBEDDED else ""

    def published(self, row: Line, column: Line) -> tuple[float, ...] | None:
        """Return the paper's numbers of a cell, empty where it has no such cell, None where it prints none."""
        return row.published[self.columns.index(column)] if row.published and column in self.columns else None

    def cell(self, row: Line, column: Line) -> list[RunSpec]:
        """Return the runs whose mean a cell is; where row and column both say something, the column has it."""
        changes = {**row.changes, **column.changes}
        apart: list[tuple[str, ...]] = [(name,) for name in self.corruptions] if not self.mixed else []
        return [changed(self.base, _under(changes, names)) for names in apart or [self.corruptions]]


@cache
def paper() -> dict[str, Grid]:
    """Return every table and figure of the paper."""
    text = Path(__file__).with_name("paper.toml").read_text(encoding="utf-8")
    return {name: _grid(name, fields) for name, fields in tomllib.loads(text).items()}


def find(name: str) -> Grid:
    """Return a table or figure by name."""
    if name not in paper():
        raise ValueError(f"No table or figure {name!r}. {suggest(name, paper())}")
    return paper()[name]


def changed(spec: RunSpec, changes: Mapping[str, Any]) -> RunSpec:
    """Return a run with some parts changed, be they the run's own or its stream's."""
    stream = {name: value for name, value in changes.items() if name in _STREAM_FIELDS}
    own = {name: value for name, value in changes.items() if name not in _STREAM_FIELDS}
    return replace(spec, stream=replace(spec.stream, **stream), **own)


def _under(changes: Mapping[str, Any], corruptions: tuple[str, ...]) -> dict[str, Any]:
    """Add corruptions to the changes; unknown sets "@same" are under the same one."""
    unknown = changes["unknown"]
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
        draw=content.get("draw", ""),
    )


def _line(content: str | Mapping[str, Any], field: str) -> Line:
    if isinstance(content, str):
        return Line(content, {field: (content,) if field == "unknown" else content})
    changes = {name: _tuple(value) for name, value in content.items() if name not in ("name", "published", "metrics")}
    published = tuple(tuple(numbers) for numbers in content.get("published", ()))
    return Line(content["name"], changes, published, tuple(content.get("metrics", ())))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
