"""Figures of where features lie, by t-SNE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from owttt.bench.figures.canvas import canvas, ink
from owttt.bench.figures.streams import firsts
from owttt.bench.records import PlacedRun, RunRecord, TableRecord

RIGHT, WRONG = "#2f8f4e", "#d6432f"


def classes(table: TableRecord, runs: Sequence[PlacedRun], path: Path) -> None:
    """Draw the features at the end of every cell's run: a color a class, unknown samples black."""
    shown = [(name, *_stage(run, -1)) for name, run in firsts(table, runs)]
    _draw(path, [(name, labels, _by_class(labels, ink(path)), stage) for name, labels, stage in shown])


def stages(table: TableRecord, runs: Sequence[PlacedRun], path: Path) -> None:
    """Draw the features of the first run as the stream goes by."""
    _, run = firsts(table, runs)[0]
    shown = [_stage(run, place) for place in range(len(run["embedding"]["stages"]))]
    names = [f"after {stage['share']:.0%} of the stream" for _, stage in shown]
    _draw(
        path,
        [
            (name, labels, _by_class(labels, ink(path)), stage)
            for name, (labels, stage) in zip(names, shown, strict=True)
        ],
    )


def verdicts(table: TableRecord, runs: Sequence[PlacedRun], path: Path) -> None:
    """Draw the features at the end: classified rightly green, rejected rightly black, wrong red."""
    panels = []
    for name, run in firsts(table, runs):
        labels, stage = _stage(run, -1)
        right = labels == np.array(stage["predicted"])
        colors = np.where(right, np.where(labels < 0, ink(path), RIGHT), WRONG)
        panels.append((f"{name}: {(~right).mean():.1%} wrong", labels, list(colors), stage))
    _draw(path, panels)


def _stage(run: RunRecord, place: int) -> tuple[Any, dict[str, Any]]:
    return np.array(run["embedding"]["labels"]), run["embedding"]["stages"][place]


def _by_class(labels: Any, unknown: str) -> list[Any]:
    return [unknown if label < 0 else f"C{label}" if label < 10 else _hue(label) for label in labels]


def _hue(label: int) -> tuple[float, float, float]:
    """Return a color for a class beyond the tenth, one of twenty around the circle."""
    turn = 2 * np.pi * (label % 20) / 20
    red, green, blue = (0.5 + 0.4 * np.cos(turn + shift) for shift in (0, 2.1, 4.2))
    return float(red), float(green), float(blue)


def _draw(path: Path, panels: Sequence[tuple[str, Any, Sequence[Any], dict[str, Any]]]) -> None:
    with canvas(path, len(panels), (3.4 * len(panels), 3.5)) as sheet:
        for axes, (title, labels, colors, stage) in zip(sheet, panels, strict=True):
            x, y = np.array(stage["x"]), np.array(stage["y"])
            for known in (False, True):
                here = np.flatnonzero((labels >= 0) == known)
                axes.scatter(x[here], y[here], s=5, lw=0, alpha=0.85, c=[colors[int(place)] for place in here])
            axes.set(title=title, xticks=[], yticks=[])
