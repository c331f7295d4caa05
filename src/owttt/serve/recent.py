"""What was answered lately: numbers for the dashboard, and what is worth keeping of a batch."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
from torch import Tensor

from owttt.serve.decoding import picture
from owttt.triage.store import Reject
from owttt.types import Prediction

NUMBER: Final = 512
"""Answers that statistics are of."""
BINS: Final = 40
SIDE: Final = 64
"""Pixels of a thumbnail."""


@final
class Recent:
    """The last answers of a stream, and the last rejects as thumbnails."""

    def __init__(self, thumbnails: int) -> None:
        self._answers: deque[tuple[float, str | None, float]] = deque(maxlen=NUMBER)
        """Score, class (None if it was rejected) and latency."""
        self._thumbnails: deque[tuple[bytes, str, float]] = deque(maxlen=thumbnails)

    def note(self, answers: Sequence[dict[str, Any]], latency: float) -> None:
        """Remember answers that took so many seconds."""
        self._answers.extend(
            (answer["score"], None if answer["unknown"] else answer["label"], latency) for answer in answers
        )

    def show(self, sample: Tensor, best: str, score: float) -> None:
        """Remember a rejected sample, if it is an image."""
        png = picture(sample, SIDE)
        if png is not None:
            self._thumbnails.append((png, best, score))

    def clear(self) -> None:
        """Forget the answers."""
        self._answers.clear()

    def thumbnails(self) -> list[tuple[bytes, str, float]]:
        """Return the last rejects, newest first: a PNG, the class each would have got, its score."""
        return list(self._thumbnails)[::-1]

    def stats(self) -> dict[str, Any]:
        """Return the share rejected, a histogram of scores, the classes and the latencies."""
        scores, labels, latencies = zip(*self._answers, strict=True) if self._answers else ((), (), ())
        values, accepted = np.array(scores, dtype=float), np.array([label is not None for label in labels], dtype=bool)
        edges = np.linspace(min([0.0, *scores]), max([1e-3, *scores]), BINS + 1)
        ordered = sorted(latencies)
        return {
            "rejected": float(1 - accepted.mean()) if scores else None,
            "histogram": {
                "edges": edges.round(4).tolist(),
                "accepted": np.histogram(values[accepted], edges)[0].tolist(),
                "rejected": np.histogram(values[~accepted], edges)[0].tolist(),
            },
            "classes": dict(Counter(label for label in labels if label is not None).most_common()),
            "latency_ms": {
                f"p{share}": round(1000 * ordered[share * (len(ordered) - 1) // 100], 2)
                for share in (50, 99)
                if ordered
            },
        }


def rejects_of(
    x: Tensor, out: Prediction, names: Sequence[str], generation: int, doubtful: float
) -> list[tuple[Reject, Tensor]]:
    """Return what a store is to keep of a batch: rejected samples, and accepted ones that scored nearly as high."""
    threshold = float(out.threshold)
    wanted = ~out.known
    if doubtful:
        wanted = wanted | (out.scores >= threshold - doubtful * abs(threshold))
    assert out.features is not None
    found = []
    for place in wanted.nonzero().flatten().tolist():
        reject = Reject(
            score=float(out.scores[place]),
            threshold=threshold if math.isfinite(threshold) else None,
            best=names[int(out.closed[place])],
            features=out.features[place].float().cpu().numpy(),
            sample=x[place].half().cpu().numpy(),
            png=picture(x[place]),
            generation=generation,
            accepted=bool(out.known[place]),
        )
        found.append((reject, x[place]))
    return found
