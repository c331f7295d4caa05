"""A comparison of methods on one stream, in a glance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from owttt.bench.figures.canvas import MUTED, canvas, color_of, ink, limits, score_histogram
from owttt.bench.records import RunRecord, TableRecord


def overview(outcomes: Mapping[str, RunRecord], path: Path, *, before: str, after: str) -> None:
    """Draw cumulative Acc_H of all methods, and the scores of the last quarter under two of them."""
    with canvas(path, 3, (12, 3.6), widths=(1.3, 1, 1)) as (left, *others):
        curves = {name: 100 * np.array(outcome["curves"]["acc_h"], float) for name, outcome in outcomes.items()}
        for name, curve in curves.items():
            width = 2.4 if name == after else 1.4
            left.plot(
                range(1, len(curve) + 1),
                curve,
                color=color_of(outcomes[name]),
                lw=width,
                label=f"{name}  {curve[-1]:.1f}",
            )
        left.set(title="cumulative Acc_H (%)", xlabel="batch", ylim=limits(curves.values(), 0.5))
        left.legend(frameon=False, ncols=2, loc="lower right", fontsize=8)
        for axes, name in zip(others, (before, after), strict=True):
            score_histogram(axes, f"{name}: scores, last quarter", outcomes[name])


def means(table: TableRecord, path: Path) -> None:
    """Draw the mean over a table's columns of every row's last metric, best first; the published mean is a mark."""
    bars = sorted(((_mean(table, row, "mean"), row) for row in table["rows"]), key=lambda bar: bar[0])
    with canvas(path, 1, (7, 0.4 * len(bars) + 0.9)) as (axes,):
        for place, (ours, row) in enumerate(bars):
            axes.barh(place, ours, color=table.get("colors", {}).get(row) or MUTED, height=0.7)
            axes.text(ours + 0.5, place, f"{ours:.1f}", va="center", fontsize=8)
            published = _mean(table, row, "published")
            if np.isfinite(published):
                axes.plot([published] * 2, [place - 0.35, place + 0.35], color=ink(path), lw=1.2)
        axes.set_yticks(range(len(bars)), [row for _, row in bars])
        axes.set(title="mean Acc_H (%); lines: published, another network", xlim=(0, 100))


def _mean(table: TableRecord, row: str, which: Literal["mean", "published"]) -> float:
    """Return the mean over the columns of a row's last metric, NaN where a column has none."""
    cells = [cell[which] for cell in table["cells"] if cell["row"] == row]
    return float(np.mean([np.nan if not cell or cell[-1] is None else cell[-1] for cell in cells]))
