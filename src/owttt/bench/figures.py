"""Results as pictures; needs matplotlib, from the extra `demo`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from owttt.bench.colours import COLOURS
from owttt.data.optional import require

INK, MUTED, KNOWN, UNKNOWN = "#22262b", "#8a9099", "#3f7fbf", "#d6432f"


def overview(
    outcomes: Mapping[str, Mapping[str, Any]], path: Path, *, before: str = "test", after: str = "owttt"
) -> None:
    """Draw cumulative Acc_H of all methods, and the scores of the last quarter under two of them."""
    matplotlib = require("matplotlib", "Pictures", extra="demo")
    matplotlib.use("Agg")
    plt = require("matplotlib.pyplot", "Pictures", extra="demo")
    style = {"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK, "axes.labelcolor": INK}
    with plt.rc_context(style):
        canvas, (left, *others) = plt.subplots(1, 3, figsize=(12, 3.6), width_ratios=(1.3, 1, 1))
        for name, outcome in outcomes.items():
            curve = 100 * np.array(outcome["curves"]["acc_h"], float)
            width = 2.4 if name == after else 1.4
            left.plot(
                range(1, len(curve) + 1), curve, color=COLOURS.get(name), lw=width, label=f"{name}  {curve[-1]:.1f}"
            )
        left.set(title="cumulative Acc_H (%)", xlabel="batch", ylim=_limits(outcomes))
        left.legend(frameon=False, ncols=2, loc="lower right", fontsize=8)
        for axes, name in zip(others, (before, after), strict=True):
            _scores(axes, name, outcomes[name])
        for axes in (left, *others):
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(colors=MUTED)
        canvas.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, dpi=150)
        plt.close(canvas)


def _limits(outcomes: Mapping[str, Mapping[str, Any]]) -> tuple[float, float]:
    """Return the range of the curves once they have settled, with room for the legend below."""
    settled = np.concatenate([100 * np.array(outcome["curves"]["acc_h"][1:], float) for outcome in outcomes.values()])
    low, high = (np.nanmin(settled), np.nanmax(settled)) if np.isfinite(settled).any() else (0.0, 100.0)
    return max(0.0, low - 0.5 * (high - low) - 2), min(100.0, high + 3)


def _scores(axes: Any, name: str, outcome: Mapping[str, Any]) -> None:
    scores = outcome["scores"]
    last = max(1, len(scores["known"]) // 4)
    threshold = outcome["curves"]["threshold"][-1]
    for kind, colour, alpha in (("known", KNOWN, 0.75), ("unknown", UNKNOWN, 0.65)):
        counts = np.sum(scores[kind][-last:], axis=0)
        axes.stairs(counts, scores["edges"], fill=True, color=colour, alpha=alpha, label=kind)
    axes.axvline(threshold, color=INK, ls="--", lw=1.2, label=f"τ = {threshold:.2f}")
    axes.set(title=f"{name}: scores, last quarter", xlabel="score (high = unknown)")
    axes.legend(frameon=False, fontsize=8)
