"""From runs to a table: its cells with the published numbers beside, and the runs they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from owttt._utils.environment import environment
from owttt.bench.engine import Done
from owttt.bench.records import FORMAT, TABLE_KIND, Cell, CellRecord, CellRun, TableRecord
from owttt.bench.results import file_name
from owttt.bench.selection import Selection, summarize
from owttt.bench.spec import RunSpec
from owttt.methods import find_method


def collect(selection: Selection, done: Sequence[Done]) -> TableRecord:
    """Return a table as JSON holds it; a cell whose runs are not all there has no numbers."""
    table, cells = selection.table, selection.cells()
    there = {one.spec.digest: one for one in done if one.record}
    columns = list(dict.fromkeys(column for _, column in cells))
    return {
        "kind": TABLE_KIND,
        "format": FORMAT,
        "name": table.name,
        "title": table.title,
        "label": table.label,
        "draw": table.draw,
        "folder": "",
        "about": selection.about(),
        "rows": list(dict.fromkeys(row for row, _ in cells)),
        "columns": columns,
        "headings": {column: selection.heading(column) for column in columns},
        "metrics": {column: list(selection.metrics(column)) for column in columns},
        "model": selection.changes.get("model", table.base.model),
        "corruptions": list(selection.corruptions or table.corruptions),
        "all_corruptions": not selection.corruptions,
        "number": selection.num_samples,
        "seeds": list(selection.seeds),
        "stand_ins": dict(selection.stand_ins),
        "extra": dict(selection.extra),
        "changes": dict(selection.changes),
        "cells": [_cell(selection, cell, runs, there) for cell, runs in cells.items()],
        "failed": sorted({one.error for one in done if one.error}),
        "environment": environment(),
        "colors": {row: find_method(runs[0].method).color for (row, _), runs in cells.items()},
        "known": table.base.stream.known,
        "highlight": table.highlight,
        "baseline": table.baseline,
    }


def _cell(selection: Selection, cell: Cell, runs: Sequence[RunSpec], done: Mapping[str, Done]) -> CellRecord:
    records = [record for run in runs if run.digest in done and (record := done[run.digest].record)]
    summary = summarize(records, selection.metrics(cell[1])) if len(records) == len(runs) else None
    return {
        "row": cell[0],
        "column": cell[1],
        "published": selection.published(cell),
        "mean": summary.mean if summary else None,
        "deviation": summary.deviation if summary else None,
        "seeds": {str(seed): values for seed, values in summary.seeds.items()} if summary else {},
        "runs": [_run(run, done.get(run.digest)) for run in runs],
    }


def _run(spec: RunSpec, done: Done | None) -> CellRun:
    about: CellRun = {
        "file": done.file if done else file_name(spec),
        "corruptions": list(spec.stream.corruptions),
        "seed": spec.stream.seed,
    }
    return {**about, "metrics": done.record["metrics"]} if done and done.record else about
