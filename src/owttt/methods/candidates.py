"""Statistics that a network might normalize with, and what speaks for them. No labels are needed.

Statistics are judged by what samples then score and answer:

    q            the lower quartile of their scores: among samples some of which are unknown, that of known ones
    I            H(mean of p) - mean of H(p), p the probabilities of the head: how much the answers tell, being certain
                 each and different from each other (Krause et al., NeurIPS 2010; what SHOT maximizes)
    gain         log(I_a / I_b) + log(q_b / q_a) of statistics a over statistics b

q alone misses what statistics are worth on some networks where half of the samples are unknown; I alone prefers
statistics of the samples themselves where all of these are of one class, since these spread the answers. Statistics are
therefore better only if, for all their gain, q is not higher by more than `WORSE`. Where statistics do not change what
the head says (networks without BatchNorm), I is the same for all, and the lower quartile of depth scores speaks in its
place: gain = log(d_b / d_a) + log(q_b / q_a). Answers that are not finite tell nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, final

from torch import Tensor

from owttt.functional import information
from owttt.types import Forward

HELD: Final = 1.5
"""How much more alike samples that look like earlier strangers may be, and still be strange."""
WORSE: Final = 0.05
"""The share by which the lower quartile of scores may rise for answers that tell more."""
LEAST_QUARTER: Final = 1e-6
LEAST_INFORMATION: Final = 1e-3
"""What q and I count as at least: samples and answers may be all alike, and the rest is rounding."""


@final
@dataclass(frozen=True)
class Candidate:
    """Statistics, what the network gives with them, and how samples then answer and score (cosine, centered, joint)."""

    statistics: Tensor
    out: Forward
    scores: Tensor
    centered: Tensor
    joint: Tensor
    logits: Tensor
    depth: Tensor | None = None
    """How unlike the source's the samples look on the way, where this and not their answers depends on statistics."""

    @property
    def quarter(self) -> float:
        """The lower quartile q of the scores."""
        return max(float(self.scores.quantile(0.25)), LEAST_QUARTER)

    @property
    def information(self) -> float:
        """How much the answers tell, I."""
        return max(float(information(self.logits)), LEAST_INFORMATION)

    @property
    def worth(self) -> float:
        """Return log(I / q), or log(I / (q·d))."""
        looks = 1.0 if self.depth is None else max(float(self.depth.quantile(0.25)), LEAST_QUARTER)
        return math.log(self.information / (self.quarter * looks))

    def better(self, other: Candidate, by: float) -> bool:
        """Whether the gain over others is larger than `by`, and the quartile not much higher."""
        return self.quarter <= (1 + WORSE) * other.quarter and self.worth - other.worth > by

    def of(self, some: Tensor) -> Candidate:
        """Return the same, judged by some of the samples."""
        values = {name: getattr(self, name) for name in ("scores", "centered", "joint", "logits", "depth")}
        return replace(self, **{name: value[some] for name, value in values.items() if value is not None})


@final
@dataclass(frozen=True)
class Split:
    """Two groups: which samples the anchor is of; how much alike both are; how mixed they are.

    Where there are no others, their likeness is that of the anchor.
    """

    anchor: Tensor
    likeness: float
    others: float
    by_own: tuple[float, float] | None = None
    """The likeness of the anchor and of the others with statistics of their own groups only, where both have these."""
    doubt: float = 0.0
    share: float = 1.0
    held: bool = False
    """Whether the others look like earlier strangers: evidence varies from batch to batch, and who was strange once
    should not be known in the next one for a trifle."""

    @property
    def overall(self) -> float:
        """The likeness of both, the anchor being a `share` of them."""
        return self.share * self.likeness + (1 - self.share) * self.others

    def strange(self, limit: float) -> bool:
        """Whether the others are unlike the anchor: with any statistics, or clearly with their groups' own ones.

        With the source's, unknown samples can end up near one class or other and look half alike. Known samples of one
        class do not look alike with statistics of their own, but then neither does the anchor, or they do with its.
        """
        limit = (HELD if self.held else 1.0) * limit - self.doubt
        if self.others < limit * self.likeness or self.by_own is None:
            return self.others < limit * self.likeness
        anchor, others = self.by_own
        return others < limit * anchor and self.others < 2 * limit * self.likeness
