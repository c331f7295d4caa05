"""The few records that travel between the parts: what a network says, what the detector says, what you get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from torch import Tensor

UNKNOWN: Final = -1
"""The label of everything the model never learned."""

Order = Literal["predict-then-adapt", "adapt-then-predict"]
"""Whether a batch is predicted before the update made from it (causal, the paper) or after (the authors' program)."""

PREDICT_THEN_ADAPT: Final[Order] = "predict-then-adapt"
ADAPT_THEN_PREDICT: Final[Order] = "adapt-then-predict"


@dataclass(frozen=True, slots=True)
class Forward:
    """What the network says of a batch: features `(B, D)` of the penultimate layer, logits `(B, K)` of its head."""

    features: Tensor
    logits: Tensor


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the detector says of a batch: scores `(B,)` (high = unknown), the threshold τ, and `weak = score < τ`."""

    scores: Tensor
    threshold: Tensor
    weak: Tensor

    @property
    def strong(self) -> Tensor:
        """The samples that look unknown: `score >= τ`."""
        return ~self.weak


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer for a batch.

    `label` `(B,)` int64 holds a class or `UNKNOWN`; `score` `(B,)` is high for unknown inputs; `threshold` is the τ
    it was held against (infinite where nothing could be rejected); `logits` `(B, K)` rank the known classes.
    """

    label: Tensor
    score: Tensor
    threshold: Tensor
    logits: Tensor

    def __len__(self) -> int:
        return len(self.label)
