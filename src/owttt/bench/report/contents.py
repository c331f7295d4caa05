"""What a page is made of: the tables of a results folder in the paper's order, and the runs that belong to none."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, cast, final

from owttt.bench.records import PlacedRun, RunRecord, TableRecord, read_runs, read_tables, whole_run
from owttt.bench.report.wording import without_folders
from owttt.data.naming import DataName

FIRST_BASELINE: Final = "test"
"""The row that others are compared with in tables of earlier versions, which name none."""
_PAPER: Final = Path(__file__).parent.with_name("paper.toml")


@final
@dataclass(frozen=True)
class TableContent:
    """A table, the name of its file, and those of its runs that are there."""

    name: str
    record: TableRecord
    runs: list[PlacedRun]

    @property
    def title(self) -> str:
        """Label and title, with what stands in for the known set."""
        known = " ".join(f"({told})" for told in self._known_stand_ins())
        return f"{self.record['label']}: {self.record['title']} {known}".rstrip()

    @property
    def baseline(self) -> str:
        """The row that others should not fall behind; empty if there is none."""
        named = self.record.get("baseline", FIRST_BASELINE)
        return named if named in self.record["rows"] else ""

    @property
    def highlight(self) -> str:
        """The row that the table is about: the last where it does not say; empty if it has no row."""
        named = self.record.get("highlight", "")
        return named if named in self.record["rows"] else next(reversed(self.record["rows"]), "")

    def _known_stand_ins(self) -> Iterator[str]:
        """Yield what stands in for the known set; first results tell it in `about` only."""
        told = self.record["about"].split(", ")
        for name, data in self.record["stand_ins"].items():
            stand_in = f"{DataName.parse(data).short} for {name}"
            if self.record.get("known") == name or stand_in in told:
                yield stand_in


@final
@dataclass(frozen=True)
class Contents:
    """All that a results folder holds."""

    tables: list[TableContent]
    loose: list[RunRecord]
    """Runs that belong to no table."""

    @property
    def runs(self) -> list[RunRecord]:
        """All runs, those of tables first."""
        return [placed["run"] for table in self.tables for placed in table.runs] + self.loose


def read_contents(folder: Path) -> Contents:
    """Read a results folder; one without any results is an error that says how to make some."""
    reader = _Reader(folder)
    tables = [reader.table(name, record) for name, record in read_tables(folder)]
    loose = [run for path, run in read_runs(folder) if reader.inside(path) not in {None, *reader.seen}]
    if not tables and not loose:
        raise FileNotFoundError(
            f"{folder}: no results there; `owttt run --results {folder}` or `owttt bench NAME --results {folder}` "
            "makes some."
        )
    return Contents(sorted(tables, key=_place), loose)


@final
class _Reader:
    """Reads the runs of tables, each file once, and none outside of the results folder, whatever a table says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.seen: dict[Path, RunRecord | None] = {}

    def inside(self, path: Path) -> Path | None:
        """Return where a path leads, or None if that is outside of the folder."""
        resolved = path.resolve()
        return resolved if resolved.is_relative_to(self.folder) else None

    def table(self, name: str, record: TableRecord) -> TableContent:
        """Return a table with its runs, and without the folders of the machine it was made on."""
        runs: list[PlacedRun] = []
        for cell in record["cells"]:
            row, column = without_folders(cell["row"]), without_folders(cell["column"])
            for entry in cell["runs"]:
                run = self._run(self.folder / record["folder"] / entry["file"])
                runs += [{"row": row, "column": column, "run": run}] if run else []
        return TableContent(name, cast(TableRecord, without_folders(record)), runs)

    def _run(self, path: Path) -> RunRecord | None:
        inside = self.inside(path)
        if inside is None:
            return None
        if inside not in self.seen:
            self.seen[inside] = whole_run(inside, "It is left out: run it again, or remove the file.")
        return self.seen[inside]


def _place(table: TableContent) -> tuple[int, int, str]:
    """Sort tables as the paper has them, the fullest of a name first; those it does not have come last."""
    order = _paper_order()
    name = table.record["name"]
    return order.index(name) if name in order else len(order), -len(table.record["cells"]), table.name


@cache
def _paper_order() -> list[str]:
    return list(tomllib.loads(_PAPER.read_text(encoding="utf-8")))
