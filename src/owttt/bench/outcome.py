"""What came of a table or figure: its cells with the published numbers beside, and the runs they are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from owttt._utils.environment import environment
from owttt.bench.engine import Done
from owttt.bench.results import file_name
from owttt.bench.selection import Campaign, Cell, summarize
from owttt.bench.spec import RunSpec
from owttt.bench.tables import paper

KIND: Final = "owttt table"
FORMAT: Final = 2
NUMBERS: Final = ("acc_s", "acc_n", "acc_h", "auroc")
"""What a table keeps of every run."""

Record = Mapping[str, Any]
"""What JSON holds: a table, a cell, the record of a run."""


def manifest(campaign: Campaign, done: Sequence[Done]) -> dict[str, Any]:
    """Return a table as JSON holds it; a cell whose runs are not all there has no numbers."""
    grid, cells = campaign.grid, campaign.cells()
    records = {file_name(one.spec): one.record for one in done if one.record}
    columns = list(dict.fromkeys(column for _, column in cells))
    return {
        "kind": KIND,
        "format": FORMAT,
        "name": grid.name,
        "title": grid.title,
        "label": grid.label,
        "draw": grid.draw,
        "folder": grid.folder,
        "about": campaign.about(),
        "rows": list(dict.fromkeys(row for row, _ in cells)),
        "columns": columns,
        "headings": {column: campaign.heading(column) for column in columns},
        "metrics": {column: list(campaign.metrics(column)) for column in columns},
        "model": campaign.changes.get("model", grid.base.model),
        "corruptions": list(campaign.corruptions or grid.corruptions),
        "all_corruptions": not campaign.corruptions,
        "number": campaign.number,
        "seeds": list(campaign.seeds),
        "stand_ins": dict(campaign.stand_ins),
        "extra": dict(campaign.extra),
        "changes": dict(campaign.changes),
        "cells": [_cell(campaign, cell, runs, records) for cell, runs in cells.items()],
        "failed": sorted({one.error for one in done if one.error}),
        "environment": environment(),
    }


def cells_of(manifest: Record) -> dict[Cell, Record]:
    """Return the cells of a table by row and column."""
    return {(cell["row"], cell["column"]): cell for cell in manifest["cells"]}


def manifests(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the tables of a results folder by name, in the paper's order."""
    paths = sorted((folder / "tables").glob("*.json"), key=_place)
    if not paths:
        raise FileNotFoundError(
            f"{folder / 'tables'}: no table there; `owttt bench NAME --results {folder}` makes one."
        )
    return [(path.stem, _read(path)) for path in paths]


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); make the table again with `owttt bench`.") from error
    if (content.get("kind"), content.get("format")) != (KIND, FORMAT):
        raise ValueError(
            f"{path}: not a table of this version of owttt; make it again with `owttt bench`, or remove it."
        )
    return content


def _place(path: Path) -> tuple[int, str]:
    name = path.stem.rpartition("-")[0]
    return (list(paper()).index(name) if name in paper() else len(paper())), path.stem


def records(manifest: Record, folder: Path) -> list[dict[str, Any]]:
    """Return the records of a table's runs with the row and column they belong to; missing ones are left out."""
    found = []
    for cell in manifest["cells"]:
        for run in cell["runs"]:
            path = folder / manifest["folder"] / run["file"]
            if path.exists():
                record = json.loads(path.read_text(encoding="utf-8"))
                found.append({**record, "row": cell["row"], "column": cell["column"]})
    return found


def _cell(campaign: Campaign, cell: Cell, runs: Sequence[RunSpec], records: Mapping[str, Record]) -> dict[str, Any]:
    there = [records[file_name(run)] for run in runs if file_name(run) in records]
    summary = summarize(there, campaign.metrics(cell[1])) if len(there) == len(runs) else None
    return {
        "row": cell[0],
        "column": cell[1],
        "published": campaign.published(cell),
        "mean": summary.mean if summary else None,
        "deviation": summary.deviation if summary else None,
        "seeds": {str(seed): values for seed, values in summary.seeds.items()} if summary else {},
        "runs": [_run(run, records.get(file_name(run))) for run in runs],
    }


def _run(run: RunSpec, record: Record | None) -> dict[str, Any]:
    about = {"file": file_name(run), "corruptions": list(run.stream.corruptions), "seed": run.stream.seed}
    return about | ({name: record["metrics"][name] for name in NUMBERS} if record else {})
