"""A comparison of methods on one stream, in a glance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from owttt.bench.figures.canvas import canvas, color_of, limits, score_histogram
from owttt.bench.records import RunRecord


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
