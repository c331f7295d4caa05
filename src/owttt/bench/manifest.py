"""What came of a table: its cells with the published numbers beside, and the runs they are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from owttt.bench.campaign import Campaign, Cell, Summary, summarise
from owttt.bench.engine import Done
from owttt.bench.results import file_name
from owttt.provenance import environment

KIND: Final = "owttt table"


def summaries_of(campaign: Campaign, done: Sequence[Done]) -> dict[Cell, Summary]:
    """Return the numbers of every cell whose runs are all there."""
    records = {file_name(one.spec): one.record for one in done if one.record}
    result = {}
    for cell, runs in campaign.cells().items():
        there = [records[file_name(run)] for run in runs if file_name(run) in records]
        if len(there) == len(runs):
            result[cell] = summarise(there, campaign.grid.metrics)
    return result


def manifest_name(campaign: Campaign) -> str:
    """Return the name of a table's file: other choices make another table and do not replace this one."""
    choices = (
        campaign.number,
        campaign.seeds,
        campaign.rows,
        campaign.columns,
        campaign.corruptions,
        sorted(campaign.stand_ins.items()),
        sorted(campaign.extra.items()),
        sorted(campaign.changes.items()),
    )
    return f"{campaign.grid.name}-{hashlib.sha256(repr(choices).encode()).hexdigest()[:8]}.json"


def manifest(campaign: Campaign, done: Sequence[Done]) -> dict[str, Any]:
    """Return a table as JSON holds it; a cell whose runs are not all there has no numbers."""
    grid, summaries = campaign.grid, summaries_of(campaign, done)
    cells = campaign.cells()
    return {
        "kind": KIND,
        "name": grid.name,
        "title": grid.title,
        "label": grid.label,
        "metrics": list(grid.metrics),
        "rows": list(dict.fromkeys(row for row, _ in cells)),
        "columns": list(dict.fromkeys(column for _, column in cells)),
        "model": campaign.changes.get("model", grid.base.model),
        "corruptions": list(campaign.corruptions or grid.corruptions),
        "all_corruptions": not campaign.corruptions,
        "number": campaign.number,
        "seeds": list(campaign.seeds),
        "stand_ins": dict(campaign.stand_ins),
        "extra": dict(campaign.extra),
        "changes": dict(campaign.changes),
        "cells": [
            {
                "row": cell[0],
                "column": cell[1],
                "published": campaign.published(cell),
                "mean": summaries[cell].mean if cell in summaries else None,
                "deviation": summaries[cell].deviation if cell in summaries else None,
                "runs": [file_name(run) for run in runs],
            }
            for cell, runs in cells.items()
        ],
        "failed": sorted({one.error for one in done if one.error}),
        "environment": environment(),
    }
