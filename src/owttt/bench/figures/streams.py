"""Figures of what streams do to methods: accuracies, curves, scores, thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from owttt.bench.colours import COLOURS
from owttt.bench.figures.canvas import INK, KNOWN, MUTED, UNKNOWN, canvas, score_histogram
from owttt.bench.manifest import cells_of
from owttt.bench.tables import METRIC_NAMES

Record = Mapping[str, Any]


def drop(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw every method's accuracies without and with unknowns as bars; diamonds are the paper's."""
    del runs
    cells, rows = cells_of(manifest), manifest["rows"]
    bars = [(column, place) for column in manifest["columns"] for place in range(len(manifest["metrics"][column]))]
    width = 0.8 / len(bars)
    with canvas(path, 1, (8.5, 3.6)) as (axes,):
        for number, ((column, place), colour) in enumerate(zip(bars, (MUTED, KNOWN, UNKNOWN), strict=False)):
            there = [cells[row, column] for row in rows]
            x = np.arange(len(rows)) + width * (number - (len(bars) - 1) / 2)
            ours = [cell["mean"][place] if cell["mean"] else np.nan for cell in there]
            name, heading = METRIC_NAMES[manifest["metrics"][column][place]], manifest["headings"][column]
            axes.bar(x, ours, 0.92 * width, color=colour, label=f"{name} {heading}")
            theirs = [cell["published"][place] if cell["published"] else np.nan for cell in there]
            label = "the paper's" if number == 0 else None
            axes.plot(x, theirs, "D", ms=3.5, mfc="none", mec=INK, mew=0.9, label=label)
        axes.set(ylim=(0, 100), ylabel="%", title=f"{manifest['label']}: {manifest['title']}")
        axes.set_xticks(np.arange(len(rows)), rows)
        axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def scores(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw the scores under every row side by side."""
    shown = [next(run for run in runs if run["row"] == row) for row in manifest["rows"]]
    with canvas(path, len(shown), (4.2 * len(shown), 3.2)) as panels:
        for axes, run in zip(panels, shown, strict=True):
            score_histogram(axes, f"{run['row']}: scores, last quarter", run)


def cumulative(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw Acc_H so far over the batches, a line a row: the mean over its runs."""
    with canvas(path, 1, (6.5, 3.8)) as (axes,):
        settled = []
        for row in manifest["rows"]:
            here = [run for run in runs if run["row"] == row]
            curve = 100 * np.mean([np.array(run["curves"]["acc_h"], float) for run in here], axis=0)
            colour = COLOURS.get(here[0]["spec"]["method"])
            width = 2.4 if row == "owttt" else 1.5
            axes.plot(np.arange(1, len(curve) + 1), curve, color=colour, lw=width, label=f"{row}  {curve[-1]:.1f}")
            settled.extend(curve[1:])
        axes.set(title=f"{manifest['label']}: {manifest['title']} (%)", xlabel="batch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylim(np.nanmin(settled) - 2, np.nanmax(settled) + 2)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def thresholds(manifest: Record, runs: Sequence[Record], path: Path) -> None:
    """Draw Acc_H under fixed thresholds as solid lines, and under the adaptive one dotted."""
    del runs
    cells = cells_of(manifest)
    fixed = [row for row in manifest["rows"] if row != "adaptive"]
    colours = list(COLOURS.values())[2:]
    with canvas(path, 1, (6.5, 3.8)) as (axes,):
        for column, colour in zip(manifest["columns"], colours, strict=False):
            means = {row: cells[row, column]["mean"] for row in manifest["rows"]}
            line = [means[row][0] if means[row] else np.nan for row in fixed]
            axes.plot([float(row) for row in fixed], line, "o-", ms=4, color=colour, label=manifest["headings"][column])
            if means.get("adaptive"):
                axes.axhline(means["adaptive"][0], color=colour, ls=":", lw=1.8)
        axes.set(title=f"{manifest['label']}: {manifest['title']}", xlabel="τ (dotted: adaptive)", ylabel="Acc_H (%)")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
