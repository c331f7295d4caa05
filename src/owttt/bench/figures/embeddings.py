"""Figures of where features lie, by t-SNE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from owttt.bench.figures.canvas import canvas

RIGHT, WRONG, REJECTED = "#2f8f4e", "#d6432f", "#22262b"
_CLASSES: Final = 20
"""How many colours there are for classes."""

Record = Mapping[str, Any]


def classes(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw the features at the end of every row's run: a colour a class, unknown samples black."""
    panels = [(row, _stage(runs, row, -1)) for row in manifest["rows"]]
    _draw(path, [(name, labels, _by_class(labels), stage) for name, (labels, stage) in panels])


def stages(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw the features of the first row's run as the stream goes by."""
    count = len(runs[0]["embedding"]["stages"])
    panels = [_stage(runs, manifest["rows"][0], place) for place in range(count)]
    names = [f"after {stage['share']:.0%} of the stream" for _, stage in panels]
    _draw(path, [(n, labels, _by_class(labels), stage) for n, (labels, stage) in zip(names, panels, strict=True)])


def verdicts(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw the features at the end: classified rightly green, rejected rightly black, wrong red."""
    panels = []
    for row in manifest["rows"]:
        labels, stage = _stage(runs, row, -1)
        right = labels == np.array(stage["predicted"])
        colours = np.where(right, np.where(labels < 0, REJECTED, RIGHT), WRONG)
        panels.append((f"{row}: {(~right).mean():.1%} wrong", labels, list(colours), stage))
    _draw(path, panels)


def _stage(runs: Sequence[Record], row: str, place: int) -> tuple[Any, Record]:
    embedding = next(run["embedding"] for run in runs if run["row"] == row)
    return np.array(embedding["labels"]), embedding["stages"][place]


def _by_class(labels: Any) -> list[Any]:
    return [REJECTED if label < 0 else f"C{label % 10}" if label < 10 else _tab(label) for label in labels]


def _tab(label: int) -> tuple[float, float, float]:
    """Return one of many colours for classes beyond the tenth, by turning the hue."""
    turn = 2 * np.pi * (label % _CLASSES) / _CLASSES
    red, green, blue = (0.5 + 0.4 * np.cos(turn + shift) for shift in (0, 2.1, 4.2))
    return float(red), float(green), float(blue)


def _draw(path: Path, panels: Sequence[tuple[str, Any, Sequence[Any], Record]]) -> None:
    with canvas(path, len(panels), (3.4 * len(panels), 3.5)) as sheet:
        for axes, (title, labels, colours, stage) in zip(sheet, panels, strict=True):
            x, y = np.array(stage["x"]), np.array(stage["y"])
            for known in (False, True):
                here = np.flatnonzero((labels >= 0) == known)
                axes.scatter(x[here], y[here], s=5, lw=0, alpha=0.85, c=[colours[int(place)] for place in here])
            axes.set(title=title, xticks=[], yticks=[])
