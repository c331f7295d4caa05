"""The paper's tables and figures, rows × columns of runs, with the numbers it prints: read from `paper.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, final

from owttt._utils.suggest import suggest
from owttt.bench.spec import RunSpec, paper_preset, with_paper_batches
from owttt.data.naming import SAME, DataName
from owttt.data.registry import common_corruptions_of
from owttt.data.streams.spec import StreamSpec

METRICS: Final = ("acc_s", "acc_n", "acc_h")
PAPER_NUMBER: Final = 10_000
"""Known samples of a run on the CIFAR benchmarks."""

EMBEDDED: Final = frozenset({"classes", "verdicts", "stages"})
"""The kinds of pictures that need embeddings of the features."""

_STREAM_FIELDS: Final = frozenset(field.name for field in fields(StreamSpec))


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
class Table:
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
    highlight: str = ""
    """The row it is about."""
    baseline: str = ""
    """The row that others should not fall behind."""

    def published(self, row: Line, column: Line) -> tuple[float, ...] | None:
        """Return the paper's numbers of a cell, empty where it has no such cell, None where it prints none."""
        return row.published[self.columns.index(column)] if row.published and column in self.columns else None

    def cell(self, row: Line, column: Line) -> list[RunSpec]:
        """Return the runs whose mean a cell is; where row and column both say something, the column has it."""
        changes = {**row.changes, **column.changes}
        apart: list[tuple[str, ...]] = [(name,) for name in self.corruptions] if not self.mixed else []
        return [changed(self.base, _under(changes, names)) for names in apart or [self.corruptions]]


@cache
def paper() -> dict[str, Table]:
    """Return every table and figure of the paper."""
    return read(Path(__file__).with_name("paper.toml"))


def read(path: Path) -> dict[str, Table]:
    """Return the tables and figures of a file like `paper.toml`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a TOML file ({error}).") from error
    tables = {}
    for name, section in content.items():
        try:
            tables[name] = _table(name, section)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path}: [{name}] is not a table: {type(error).__name__} {error}. It needs title, label, model, "
                "known, corruptions, rows and columns; `owttt/bench/paper.toml` holds examples."
            ) from error
    return tables


def find(name: str, tables: Mapping[str, Table] | None = None) -> Table:
    """Return a table or figure by name, of the paper's or of others."""
    known = paper() if tables is None else tables
    if name not in known:
        raise ValueError(f"No table or figure {name!r}. {suggest(name, known)}")
    return known[name]


def changed(spec: RunSpec, changes: Mapping[str, Any]) -> RunSpec:
    """Return a run with some parts changed, be they the run's own or its stream's."""
    stream = {name: value for name, value in changes.items() if name in _STREAM_FIELDS}
    own = {name: value for name, value in changes.items() if name not in _STREAM_FIELDS}
    return replace(spec, stream=replace(spec.stream, **stream), **own)


def _under(changes: Mapping[str, Any], corruptions: tuple[str, ...]) -> dict[str, Any]:
    """Add corruptions to the changes; unknown sets "@same" are under the same one."""
    if "unknown" not in changes:
        raise ValueError('A column must say its unknown sets: unknown = ["mnist"], or be one\'s name.')
    names = list(map(DataName.parse, changes["unknown"]))
    if not corruptions and any(name.corruption == SAME for name in names):
        raise ValueError("name@same takes the run's corruption, and this table has none.")
    same = (name.under(corruptions[0]) if name.corruption == SAME else name for name in names)
    return {**changes, "corruptions": corruptions, "unknown": tuple(map(str, same))}


def _table(name: str, content: Mapping[str, Any]) -> Table:
    model, known = content["model"], content["known"]
    stream = StreamSpec(known=known)
    draw, corruptions = content.get("draw", ""), content["corruptions"]
    base = RunSpec(
        model,
        stream,
        preset=None if content.get("preset") == "none" else content.get("preset", paper_preset(model, known)),
        restrict=content.get("restrict", False),
        embed=draw in EMBEDDED,
    )
    return Table(
        name=name,
        title=content["title"],
        label=content["label"],
        base=with_paper_batches(base),
        corruptions=_corruptions(name, known, corruptions),
        mixed=content.get("mixed", False),
        rows=tuple(_line(row, "method") for row in content["rows"]),
        columns=tuple(_line(column, "unknown") for column in content["columns"]),
        metrics=tuple(content.get("metrics", METRICS)),
        number=content.get("number", PAPER_NUMBER),
        draw=draw,
        highlight=content.get("highlight", ""),
        baseline=content.get("baseline", ""),
    )


def _corruptions(table: str, known: str, named: Any) -> tuple[str, ...]:
    if not isinstance(named, list):
        raise ValueError(f"[{table}]: corruptions must be a list of names, got {named!r}.")
    if named != ["all"]:
        return tuple(named)
    common = common_corruptions_of(known)
    if common is None:
        raise ValueError(f"[{table}]: what {known} is of its name does not tell; name the corruptions instead of all.")
    return common


def _line(content: str | Mapping[str, Any], field: str) -> Line:
    if isinstance(content, str):
        return Line(content, {field: (content,) if field == "unknown" else content})
    changes = {name: _tuple(value) for name, value in content.items() if name not in ("name", "published", "metrics")}
    published = tuple(tuple(numbers) for numbers in content.get("published", ()))
    return Line(content["name"], changes, published, tuple(content.get("metrics", ())))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
