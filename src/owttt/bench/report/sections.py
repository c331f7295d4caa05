"""The sections of the page: a table or figure each, with all that belongs to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from owttt.bench.records import RunRecord
from owttt.bench.report.contents import TableContent
from owttt.bench.report.embedded import Figure, read_figure
from owttt.bench.report.grids import Grid, HeatMap, gap_grid, heat_maps, number_grid
from owttt.bench.report.wording import anchor, without_folders
from owttt.data.naming import DataName

_CONFIGURATION: Final = ("spec", "adapter", "data", "environment", "fingerprints")


@final
@dataclass(frozen=True)
class Configuration:
    """What one of so many runs depends on, as JSON."""

    runs: int
    text: str


@final
@dataclass(frozen=True)
class Section:
    """A table or figure."""

    anchor: str
    title: str
    about: str
    notes: list[str]
    figure: Figure | None
    grid: Grid
    gaps: Grid | None
    heat_maps: list[HeatMap]
    configuration: Configuration | None
    viewed: bool
    """Whether its runs are drawn as the stream goes by."""


def section(table: TableContent, figures: Path) -> Section:
    """Return the section of a table or figure, whose pictures are in a folder."""
    record = table.record
    notes = [f"{DataName.parse(data).short} stands in for {name}" for name, data in record["stand_ins"].items()]
    return Section(
        anchor=anchor(table.name),
        title=table.title,
        about=record["about"],
        notes=notes + [f"failed: {reason}" for reason in record["failed"]],
        figure=read_figure(figures, table.name) if record["draw"] else None,
        grid=number_grid(table),
        gaps=gap_grid(record),
        heat_maps=heat_maps(record),
        configuration=configuration([placed["run"] for placed in table.runs]),
        viewed=bool(table.runs) and not record["draw"],
    )


def configuration(runs: Sequence[RunRecord]) -> Configuration | None:
    """Return what the last of some runs depends on."""
    if not runs:
        return None
    kept = {key: value for key, value in runs[-1].items() if key in _CONFIGURATION}
    return Configuration(len(runs), json.dumps(without_folders(kept), indent=1, ensure_ascii=False))
