"""Figures of what streams do to methods: accuracies, curves, scores, thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from owttt.bench.figures.canvas import KNOWN, MUTED, UNKNOWN, canvas, ink, limits, score_histogram
from owttt.bench.records import PlacedRun, RunRecord, TableRecord, cells_of, metric_name


def drop(table: TableRecord, runs: Sequence[PlacedRun], path: Path) -> None:
    """Draw every method's accuracies without and with unknowns as bars; diamonds are the paper's."""
    del runs
    cells, rows = cells_of(table), table["rows"]
    bars = [(column, place) for column in table["columns"] for place in range(len(table["metrics"][column]))]
    width = 0.8 / len(bars)
    with canvas(path, 1, (8.5, 3.6)) as (axes,):
        for number, (column, place) in enumerate(bars):
            color = (MUTED, KNOWN, UNKNOWN)[number] if number < 3 else f"C{number}"
            there = [cells[row, column] for row in rows]
            x = np.arange(len(rows)) + width * (number - (len(bars) - 1) / 2)
            ours = [_number(cell["mean"], place) for cell in there]
            name, heading = metric_name(table["metrics"][column][place]), table["headings"][column]
            axes.bar(x, ours, 0.92 * width, color=color, label=f"{name} {heading}")
            theirs = [_number(cell["published"], place) for cell in there]
            label = "the paper's" if number == 0 else None
            axes.plot(x, theirs, "D", ms=3.5, mfc="none", mec=ink(path), mew=0.9, label=label)
        axes.set(ylim=(0, 100), ylabel="%", title=f"{table['label']}: {table['title']}")
        axes.set_xticks(np.arange(len(rows)), rows)
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def scores(table: TableRecord, runs: Sequence[PlacedRun], path: Path) -> None:
    """Draw the scores of every cell side by side, of its first run."""
    shown = firsts(table, runs)
    with canvas(path, len(shown), (4.2 * len(shown), 3.2)) as panels:
        for axes, (name, run) in zip(panels, shown, strict=True):
            score_histogram(axes, f"{name}: scores, last quarter", run)


def cumulative(table: TableRecord, runs: Sequence[PlacedRun], path: Path) -> None:
    """Draw Acc_H so far over the batches, a panel a column and a line a row: the mean over its runs."""
    columns = table["columns"]
    with canvas(path, len(columns), (6.5 * len(columns), 3.8)) as panels:
        for axes, column in zip(panels, columns, strict=True):
            curves = {row: _mean_curve(runs, row, column) for row in table["rows"]}
            for row, curve in curves.items():
                if len(curve):
                    width = 2.4 if row == table.get("highlight") else 1.5
                    label = f"{row}  {curve[-1]:.1f}"
                    axes.plot(
                        np.arange(1, len(curve) + 1),
                        curve,
                        color=table.get("colors", {}).get(row),
                        lw=width,
                        label=label,
                    )
            axes.set(title=f"{table['label']}: Acc_H so far (%), {table['headings'][column]}", xlabel="batch")
            axes.set_ylim(limits([curve for curve in curves.values() if len(curve)]))
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def thresholds(table: TableRecord, runs: Sequence[PlacedRun], path: Path) -> None:
    """Draw Acc_H under fixed thresholds as solid lines, and under the adaptive one dotted; a color a column."""
    del runs
    cells = cells_of(table)
    fixed = [row for row in table["rows"] if row != "adaptive"]
    with canvas(path, 1, (6.5, 3.8)) as (axes,):
        for number, column in enumerate(table["columns"]):
            means = {row: cells[row, column]["mean"] for row in table["rows"]}
            line = [_number(means[row], 0) for row in fixed]
            name = table["headings"][column]
            axes.plot([float(row) for row in fixed], line, "o-", ms=4, color=f"C{number}", label=name)
            if means.get("adaptive"):
                axes.axhline(_number(means["adaptive"], 0), color=f"C{number}", ls=":", lw=1.8)
        axes.set(title=f"{table['label']}: {table['title']}", xlabel="τ (dotted: adaptive)", ylabel="Acc_H (%)")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def firsts(table: TableRecord, runs: Sequence[PlacedRun]) -> list[tuple[str, RunRecord]]:
    """Return the first run of every cell that has one, with a name for it."""
    several, seeds = len(table["columns"]) > 1, len(table["seeds"]) > 1
    found = []
    for row in table["rows"]:
        for column in table["columns"]:
            run = next((one["run"] for one in runs if (one["row"], one["column"]) == (row, column)), None)
            if run is not None:
                against = f", {table['headings'][column]}" if several else ""
                seed = f", seed {run['spec']['stream']['seed']}" if seeds else ""
                found.append((f"{row}{against}{seed}", run))
    return found


def _mean_curve(runs: Sequence[PlacedRun], row: str, column: str) -> NDArray[np.float64]:
    """Return the mean of a cell's curves in percent, as long as the shortest of them."""
    curves = [one["run"]["curves"]["acc_h"] for one in runs if (one["row"], one["column"]) == (row, column)]
    shortest = min(map(len, curves), default=0)
    values = np.array([curve[:shortest] for curve in curves], float)
    return 100 * values.mean(axis=0) if curves else np.zeros(0)


def _number(values: Sequence[float | None] | None, place: int) -> float:
    value = values[place] if values else None
    return np.nan if value is None else value
