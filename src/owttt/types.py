"""The few records that travel between the parts: what a network says, what the detector says, what you get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch
from torch import Tensor

from owttt.functional import cosine_similarity

UNKNOWN: Final = -1
"""The label of everything the model never learned."""

Order = Literal["predict-then-adapt", "adapt-then-predict"]
"""Whether a batch is predicted before the update made from it (causal, the paper) or after (the authors' program)."""

PREDICT_THEN_ADAPT: Final[Order] = "predict-then-adapt"
ADAPT_THEN_PREDICT: Final[Order] = "adapt-then-predict"


@dataclass(frozen=True, eq=False)
class Strangers:
    """Samples that are unknown whatever they score; a threshold is not made of them."""

    which: Tensor
    """`(B,)` bool."""
    distinct: bool
    """Whether they stand out so clearly that few of the others will be unknown, too."""


@dataclass(frozen=True, eq=False)
class Forward:
    """What the network says of a batch: features `(B, D)` of the penultimate layer, logits `(B, K)` of its head."""

    features: Tensor
    logits: Tensor
    note: Any = None
    """What a method wants to remember of this pass when it adapts."""
    strangers: Strangers | None = None
    """Samples that a method takes for unknown whatever they score."""
    corrected: bool = False
    """Whether the method undid the shift of the stream, with statistics of the known samples in it."""
    depth: Tensor | None = None
    """`(B, C)`, how each sample looks to the layers on the way (`network.depth`), where a score asks for that."""
    _cosines: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False, repr=False)

    @torch.no_grad()
    def cosines(self, prototypes: Tensor) -> Tensor:
        """Return the cosines `(B, K)` to unit prototypes, without a graph; they are computed once."""
        for known, cosines in self._cosines:
            if known is prototypes:
                return cosines
        self._cosines.append((prototypes, cosine_similarity(self.features.detach(), prototypes)))
        return self._cosines[-1][1]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the detector says of a batch: scores `(B,)` (high = unknown), the threshold τ, and `known = score < τ`.

    Known samples are the paper's weak, unknown ones its strong out-of-distribution samples.
    """

    scores: Tensor
    threshold: Tensor
    known: Tensor
    strange: Tensor | None = None
    """Samples that are unknown whatever they score, if there are any."""

    @property
    def unknown(self) -> Tensor:
        """The samples that look unknown: `score >= τ`."""
        return ~self.known


@dataclass(frozen=True, slots=True, repr=False)
class Prediction:
    """The answer for a batch of B samples.

    Attributes:
        labels: `(B,)` int64, a class or `UNKNOWN` (-1); promoted classes are counted on from K.
        scores: `(B,)`, how unknown each sample looks; high = unknown.
        threshold: The τ that scores were held against, infinite where nothing could be rejected.
        logits: `(B, K)`, ranking of the known classes: cosines to the class means divided by 0.1, or the head's own;
            one more column for every promoted class.
        closed: `(B,)` int64, the best known class, also of a rejected sample.
        confidence: `(B,)`, the probability that the model's own head gives to that class.
        outliers: `(B,)` bool, samples that are nothing like the source data: rejected, and never learned from.
        learned: False if the guard took the update made from this batch back, or began anew; samples of a small batch,
            which are gathered, count as learned.
        classes: Names of the known classes, if the adapter was given them; those of promoted ones follow.
        features: `(B, D)`, what the answer rests on: the penultimate features of the network.
    """

    labels: Tensor
    scores: Tensor
    threshold: Tensor
    logits: Tensor
    closed: Tensor
    confidence: Tensor
    classes: tuple[str, ...] | None = None
    outliers: Tensor | None = None
    learned: bool = True
    features: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        unknown, threshold = int((~self.known).sum()), float(self.threshold)
        return f"Prediction({len(self)} samples, {unknown} of them unknown, threshold {threshold:.3g})"

    @property
    def known(self) -> Tensor:
        """`(B,)` bool, the samples that were not rejected."""
        return self.labels != UNKNOWN

    @property
    def names(self) -> list[str]:
        """The name of every label; needs the adapter's `classes=`."""
        if self.classes is None:
            raise ValueError("This adapter was not told the names of its classes; wrap(…, classes=[…]) tells it.")
        return ["unknown" if label == UNKNOWN else self.classes[label] for label in self.labels.tolist()]

    @property
    def label(self) -> Tensor:
        """Earlier spelling of `labels`."""
        return self.labels

    @property
    def score(self) -> Tensor:
        """Earlier spelling of `scores`."""
        return self.scores
