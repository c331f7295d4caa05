"""Figures of what streams do to methods: accuracies, curves, scores, thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from owttt.bench.colors import COLORS
from owttt.bench.figures.canvas import INK, KNOWN, MUTED, UNKNOWN, canvas, limits, score_histogram
from owttt.bench.outcome import Record, cells_of
from owttt.bench.text import METRIC_NAMES


def drop(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw every method's accuracies without and with unknowns as bars; diamonds are the paper's."""
    del runs
    cells, rows = cells_of(manifest), manifest["rows"]
    bars = [(column, place) for column in manifest["columns"] for place in range(len(manifest["metrics"][column]))]
    width = 0.8 / len(bars)
    with canvas(path, 1, (8.5, 3.6)) as (axes,):
        for number, (column, place) in enumerate(bars):
            color = (MUTED, KNOWN, UNKNOWN, *COLORS.values())[number % (3 + len(COLORS))]
            there = [cells[row, column] for row in rows]
            x = np.arange(len(rows)) + width * (number - (len(bars) - 1) / 2)
            ours = [_number(cell["mean"], place) for cell in there]
            name, heading = METRIC_NAMES[manifest["metrics"][column][place]], manifest["headings"][column]
            axes.bar(x, ours, 0.92 * width, color=color, label=f"{name} {heading}")
            theirs = [_number(cell["published"], place) for cell in there]
            label = "the paper's" if number == 0 else None
            axes.plot(x, theirs, "D", ms=3.5, mfc="none", mec=INK, mew=0.9, label=label)
        axes.set(ylim=(0, 100), ylabel="%", title=f"{manifest['label']}: {manifest['title']}")
        axes.set_xticks(np.arange(len(rows)), rows)
        axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def scores(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw the scores of every cell side by side, of its first run."""
    shown = firsts(manifest, runs)
    with canvas(path, len(shown), (4.2 * len(shown), 3.2)) as panels:
        for axes, (name, run) in zip(panels, shown, strict=True):
            score_histogram(axes, f"{name}: scores, last quarter", run)


def cumulative(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw Acc_H so far over the batches, a panel a column and a line a row: the mean over its runs."""
    columns = manifest["columns"]
    with canvas(path, len(columns), (6.5 * len(columns), 3.8)) as panels:
        for axes, column in zip(panels, columns, strict=True):
            curves = {row: _mean_curve(runs, row, column) for row in manifest["rows"]}
            for row, curve in curves.items():
                if len(curve):
                    width = 2.4 if row == "owttt" else 1.5
                    label = f"{row}  {curve[-1]:.1f}"
                    axes.plot(np.arange(1, len(curve) + 1), curve, color=COLORS.get(row), lw=width, label=label)
            axes.set(title=f"{manifest['label']}: Acc_H so far (%), {manifest['headings'][column]}", xlabel="batch")
            axes.set_ylim(limits([curve for curve in curves.values() if len(curve)]))
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def thresholds(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw Acc_H under fixed thresholds as solid lines, and under the adaptive one dotted; a color a column."""
    del runs
    cells = cells_of(manifest)
    fixed = [row for row in manifest["rows"] if row != "adaptive"]
    with canvas(path, 1, (6.5, 3.8)) as (axes,):
        for number, column in enumerate(manifest["columns"]):
            means = {row: cells[row, column]["mean"] for row in manifest["rows"]}
            line = [_number(means[row], 0) for row in fixed]
            name = manifest["headings"][column]
            axes.plot([float(row) for row in fixed], line, "o-", ms=4, color=f"C{number}", label=name)
            if means.get("adaptive"):
                axes.axhline(_number(means["adaptive"], 0), color=f"C{number}", ls=":", lw=1.8)
        axes.set(title=f"{manifest['label']}: {manifest['title']}", xlabel="τ (dotted: adaptive)", ylabel="Acc_H (%)")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def firsts(manifest: Record, runs: Sequence[Record]) -> list[tuple[str, Record]]:
    """Return the first run of every cell that has one, with a name for it."""
    several, seeds = len(manifest["columns"]) > 1, len(manifest["seeds"]) > 1
    found = []
    for row in manifest["rows"]:
        for column in manifest["columns"]:
            run = next((run for run in runs if (run["row"], run["column"]) == (row, column)), None)
            if run is not None:
                against = f", {manifest['headings'][column]}" if several else ""
                seed = f", seed {run['spec']['stream']['seed']}" if seeds else ""
                found.append((f"{row}{against}{seed}", run))
    return found


def _mean_curve(runs: Sequence[Record], row: str, column: str) -> NDArray[np.float64]:
    """Return the mean of a cell's curves in percent, as long as the shortest of them."""
    curves = [run["curves"]["acc_h"] for run in runs if (run["row"], run["column"]) == (row, column)]
    shortest = min(map(len, curves), default=0)
    values = np.array([curve[:shortest] for curve in curves], float)
    return 100 * values.mean(axis=0) if curves else np.zeros(0)


def _number(values: Sequence[float | None] | None, place: int) -> float:
    value = values[place] if values else None
    return np.nan if value is None else value
