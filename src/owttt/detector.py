"""The detector all methods share: a score of each sample, a window of recent scores, a threshold that splits them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn

from owttt.functional import centred_score, cosine_score, energy_score, max_softmax_score, otsu_threshold
from owttt.memory import Queue
from owttt.source import SourceStats
from owttt.types import Forward, Verdict

Score = Callable[[Forward, SourceStats], Tensor]
"""Scores `(B,)` of a batch, high = unknown, any finite range."""

SCORES: Final[dict[str, Score]] = {
    "cosine": lambda out, source: cosine_score(out.features, source.prototypes),
    "centred": lambda out, source: centred_score(out.features, source.class_means, source.mean),
    "energy": lambda out, _: energy_score(out.logits),
    "max-softmax": lambda out, _: max_softmax_score(out.logits),
}

Threshold = Callable[[Tensor], Tensor]
"""The threshold τ (a scalar tensor) for a window of scores `(N,)`; unknown is what scores τ or more."""


@dataclass(frozen=True)
class Otsu:
    """The paper's adaptive threshold, optionally kept within bounds (its appendix: [0.4, 1.0])."""

    weighted: bool = True
    low: float = -math.inf
    high: float = math.inf

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the threshold of a window of scores."""
        return otsu_threshold(scores, weighted=self.weighted).clamp(self.low, self.high)


@dataclass(frozen=True)
class Fixed:
    """One threshold for good; infinity switches the detector off."""

    value: float

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the threshold, whatever the scores."""
        return scores.new_tensor(self.value)


THRESHOLDS: Final[dict[str, Threshold]] = {
    "adaptive": Otsu(),
    "adaptive-unweighted": Otsu(weighted=False),
    "off": Fixed(math.inf),
}


def as_score(score: str | Score) -> Score:
    """Look a score up by name, or take a callable as it is."""
    if callable(score):
        return score
    if score not in SCORES:
        raise ValueError(f"No score {score!r}; choose one of {sorted(SCORES)} or pass a callable.")
    return SCORES[score]


def as_threshold(threshold: str | float | tuple[float, float] | Threshold) -> Threshold:
    """Read a threshold: a name, a number (fixed), a pair (adaptive within bounds), or a callable."""
    if isinstance(threshold, str):
        if threshold not in THRESHOLDS:
            raise ValueError(
                f"No threshold {threshold!r}; choose one of {sorted(THRESHOLDS)}, a number, two bounds, a callable."
            )
        return THRESHOLDS[threshold]
    if isinstance(threshold, tuple | list):
        low, high = threshold
        if not low <= high:
            raise ValueError(f"Bounds of a threshold must be ordered, got {threshold}.")
        return Otsu(low=low, high=high)
    if isinstance(threshold, int | float):
        if math.isnan(threshold):
            raise ValueError("A fixed threshold must be a number, got NaN.")
        return Fixed(float(threshold))
    return threshold


@final
class Detector(nn.Module):
    """Scores, the last `window` of them, and the verdict on a batch."""

    def __init__(self, score: Score, threshold: Threshold, window: int, like: Tensor) -> None:
        super().__init__()
        self.score = score
        self.threshold = threshold
        self.window = Queue(window, (), like)

    def scores(self, out: Forward, source: SourceStats) -> Tensor:
        """Return the batch's scores, checked: one finite number a sample."""
        scores = self.score(out, source).detach()
        if scores.shape != out.features.shape[:1]:
            raise ValueError(f"Expected one score a sample, {len(out.features)}, got shape {tuple(scores.shape)}.")
        if not scores.isfinite().all():
            raise FloatingPointError(
                "The network's scores are not finite: adaptation has diverged. Call reset(), lower the learning rate."
            )
        return scores.to(self.window.items.dtype)

    @torch.no_grad()
    def judge(self, scores: Tensor) -> Verdict:
        """Hold a batch's scores against the threshold of the window they are part of; nothing is remembered."""
        threshold = self.threshold(self.window.joined(scores))
        return Verdict(scores, threshold, scores < threshold)

    def observe(self, scores: Tensor) -> None:
        """Remember a batch's scores."""
        self.window.push(scores)
