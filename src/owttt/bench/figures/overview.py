"""A comparison of methods on one stream, in a glance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from owttt.bench.figures.canvas import MUTED, canvas, color_of, limits, score_histogram
from owttt.bench.records import RunRecord, corruption_of


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


def by_corruption(rows: Mapping[str, Sequence[RunRecord]], path: Path) -> None:
    """Draw mean Acc_H as one group of bars for every corruption that all rows have as many runs of, and over all."""
    found = {name: accuracies_by_corruption(runs) for name, runs in rows.items()}
    first = next(iter(found.values()))
    groups = [group for group in first if len({len(row.get(group, ())) for row in found.values()}) == 1]
    with canvas(path, 1, (max(7, 1.3 * len(groups) + 2), 3.4)) as (axes,):
        width = 0.8 / len(rows)
        for number, (name, values) in enumerate(found.items()):
            heights = [float(np.mean(values[group])) for group in groups]
            heights.append(float(np.mean(heights)))
            places = np.arange(len(heights)) + (number - (len(rows) - 1) / 2) * width
            axes.bar(places, heights, width, color=color_of(rows[name][0]) or MUTED, label=name)
            for place, height in zip(places, heights, strict=True):
                axes.text(place, height + 1, f"{height:.0f}", ha="center", fontsize=7)
        axes.set_xticks(range(len(groups) + 1), [*(group.replace("_", " ") for group in groups), "mean"])
        axes.set(ylabel="Acc_H (%)", ylim=(0, 100))
        axes.legend(frameon=False, ncols=len(rows), loc="upper center", bbox_to_anchor=(0.5, 1.14))


def accuracies_by_corruption(runs: Sequence[RunRecord]) -> dict[str, list[float]]:
    """Return Acc_H of all runs, in percent, by what corrupts them."""
    values: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        value = run["metrics"]["acc_h"]
        values[corruption_of(run)].append(np.nan if value is None else 100 * value)
    return values
