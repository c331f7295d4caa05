"""Answers for batches of which some samples were left out."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from owttt.types import Prediction


def with_rejected(answer: Prediction | None, odd: Tensor, nothing: Prediction) -> Prediction:
    """Return answers for a whole batch: `answer` for samples that are not odd, and what `nothing` says for those."""
    if answer is None:
        return replace(nothing, outliers=odd, learned=False)

    def merged(ours: Tensor, theirs: Tensor) -> Tensor:
        whole = theirs.to(ours.dtype).clone()
        whole[~odd] = ours
        return whole

    return replace(
        answer,
        labels=merged(answer.labels, nothing.labels),
        scores=merged(answer.scores, nothing.scores.clamp_min(float(answer.scores.max()))),
        logits=merged(answer.logits, nothing.logits),
        closed=merged(answer.closed, nothing.closed),
        confidence=merged(answer.confidence, nothing.confidence),
        outliers=odd,
    )
