"""A sheet of panels that all pictures share: one look, written whole or not at all."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from owttt._utils.files import write_bytes
from owttt._utils.optional import require
from owttt.bench.records import RunRecord

MUTED, KNOWN, UNKNOWN = "#8a9099", "#3f7fbf", "#d6432f"
LIGHT_INK, DARK_INK, DARK_PAPER = "#22262b", "#e8eaed", "#14171a"
DARK: Final = "-dark"
"""Behind the name of a picture for dark pages."""


def ink(path: Path) -> str:
    """Return the color that text and lines have in a picture: dark on light paper, or the other way round."""
    return DARK_INK if path.stem.endswith(DARK) else LIGHT_INK


def _style(path: Path) -> dict[str, Any]:
    paper = DARK_PAPER if path.stem.endswith(DARK) else "white"
    return {
        "font.size": 9,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": ink(path),
        "text.color": ink(path),
        "figure.facecolor": paper,
        "axes.facecolor": paper,
        "savefig.facecolor": paper,
        "svg.fonttype": "none",
        "svg.hashsalt": "owttt",
    }


@contextmanager
def canvas(path: Path, panels: int, size: tuple[float, float], *, widths: Sequence[float] = ()) -> Iterator[list[Any]]:
    """Yield panels side by side, and write the sheet afterwards; the file's name says as what, and on which paper."""
    matplotlib = require("matplotlib", "Pictures", extra="demo")
    matplotlib.use("Agg")
    plt = require("matplotlib.pyplot", "Pictures", extra="demo")
    with plt.rc_context(_style(path)):
        sheet, axes = plt.subplots(1, panels, figsize=size, width_ratios=widths or None, squeeze=False)
        try:
            yield list(axes[0])
            for one in axes[0]:
                one.spines[["top", "right"]].set_visible(False)
                one.tick_params(colors=MUTED)
            sheet.tight_layout()
            drawn = io.BytesIO()
            kind = path.suffix[1:]
            sheet.savefig(drawn, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, drawn.getvalue())
        finally:
            plt.close(sheet)


def limits(curves: Iterable[NDArray[np.float64]], below: float = 0.1) -> tuple[float, float]:
    """Return a range for curves in percent, as they are once they have settled, with a share of room below."""
    settled = [value for curve in curves for value in curve[min(1, len(curve) - 1) :].tolist() if math.isfinite(value)]
    low, high = min(settled, default=0.0), max(settled, default=100.0)
    return max(0.0, low - below * (high - low) - 2), min(100.0, high + 3)


def score_histogram(axes: Any, title: str, run: RunRecord) -> None:
    """Draw the scores of the last quarter of a run, known against unknown, and its last threshold."""
    scores = run["scores"]
    last = max(1, len(scores["known"]) // 4)
    threshold = run["curves"]["threshold"][-1]
    for kind, batches, color, alpha in (
        ("known", scores["known"], KNOWN, 0.75),
        ("unknown", scores["unknown"], UNKNOWN, 0.65),
    ):
        counts = [sum(column) for column in zip(*batches[-last:], strict=True)]
        axes.stairs(counts, scores["edges"], fill=True, color=color, alpha=alpha, label=kind)
    if threshold is not None and math.isfinite(threshold):
        axes.axvline(threshold, color=axes.xaxis.label.get_color(), ls="--", lw=1.2, label=f"τ* = {threshold:.2f}")
    axes.set(title=title, xlabel="score (high = unknown)", ylabel="samples")
    axes.legend(frameon=False, fontsize=8)


def color_of(run: RunRecord) -> str | None:
    """Return the color of a run's method; None lets matplotlib choose."""
    return run["method"]["color"] if "method" in run else None
