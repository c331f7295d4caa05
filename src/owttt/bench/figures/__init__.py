"""Results as pictures, PNG and SVG; needs matplotlib, from the extra `demo`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from owttt.bench.figures.canvas import DARK
from owttt.bench.figures.embeddings import classes, stages, verdicts
from owttt.bench.figures.overview import by_corruption, overview
from owttt.bench.figures.streams import cumulative, drop, scores, thresholds
from owttt.bench.records import PlacedRun, TableRecord

DRAW: Final[dict[str, Callable[[TableRecord, Sequence[PlacedRun], Path], None]]] = {
    "drop": drop,
    "scores": scores,
    "cumulative": cumulative,
    "thresholds": thresholds,
    "classes": classes,
    "verdicts": verdicts,
    "stages": stages,
}
__all__ = ["DRAW", "by_corruption", "draw", "overview"]


def draw(table: TableRecord, runs: Sequence[PlacedRun], folder: Path, name: str) -> list[Path]:
    """Draw a figure of the paper from its runs, as PNG, as SVG and for dark pages, and return the files."""
    paths = [folder / f"{name}{ending}" for ending in (".png", ".svg", f"{DARK}.svg")]
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        DRAW[table["draw"]](table, runs, path)
    return paths
