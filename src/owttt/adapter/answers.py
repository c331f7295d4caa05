"""Answers: from what network and detector say to a prediction, also for samples that were left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from owttt.functional import wide
from owttt.source import SourceStats
from owttt.types import UNKNOWN, Forward, Prediction, Verdict

TEMPERATURE: Final = 0.1
"""By which cosines to the class means are divided to make logits, δ of the paper."""


@torch.no_grad()
def answers(
    out: Forward, verdict: Verdict, unknown: Tensor, prototypes: Tensor | None, classes: tuple[str, ...] | None
) -> Prediction:
    """Return the nearest of the prototypes, or what the head says if there are none; -1 where a sample is unknown."""
    head = wide(out.logits.detach())
    logits = head if prototypes is None else out.cosines(prototypes) / TEMPERATURE
    closed = logits.argmax(dim=1)
    return Prediction(
        labels=closed.masked_fill(unknown, UNKNOWN),
        scores=verdict.scores.clone(),
        threshold=verdict.threshold.clone(),
        logits=logits,
        closed=closed,
        confidence=head.softmax(dim=1).gather(1, closed[:, None])[:, 0],
        classes=classes,
        features=out.features.detach(),
    )


def with_promoted(answer: Prediction, ahead: Tensor, classes: tuple[str, ...] | None) -> Prediction:
    """Return answers that know promoted classes; `ahead` `(B, P)` is by how much cosine these exceed the source's."""
    best, which = ahead.max(dim=1)
    return replace(
        answer,
        labels=torch.where(best > 0, answer.logits.shape[1] + which, answer.labels),
        logits=torch.cat((answer.logits, answer.logits.amax(dim=1, keepdim=True) + ahead / TEMPERATURE), dim=1),
        classes=classes,
    )


def rejections(
    count: int, window: Tensor, source: SourceStats, promoted: int, classes: tuple[str, ...] | None
) -> Prediction:
    """Return "unknown" for so many samples: as unknown as anything in the window, and no class is likelier."""
    like = source.prototypes
    unknown = torch.full((count,), UNKNOWN, device=like.device)
    return Prediction(
        labels=unknown,
        scores=torch.cat((window, like.new_ones(1))).amax().repeat(count),
        threshold=like.new_tensor(torch.inf),
        logits=like.new_zeros(count, source.num_classes + promoted),
        closed=torch.zeros_like(unknown),
        confidence=like.new_zeros(count),
        classes=classes,
        features=like.new_zeros(count, like.shape[1]),
    )


def with_rejected(answer: Prediction | None, odd: Tensor, nothing: Prediction) -> Prediction:
    """Return answers for a whole batch: `answer` for samples that are not odd, and what `nothing` says for those."""
    if answer is None:
        return replace(nothing, outliers=odd, learned=False)

    def merged(ours: Tensor | None, theirs: Tensor | None) -> Tensor:
        assert ours is not None
        assert theirs is not None
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
        features=merged(answer.features, nothing.features),
    )


def part_of(answer: Prediction, rows: slice) -> Prediction:
    """Return the answers for some of the samples."""
    if rows == slice(None):
        return answer
    each = ("labels", "scores", "logits", "closed", "confidence", "outliers", "features")
    some: dict[str, Any] = {name: getattr(answer, name) for name in each}
    return replace(answer, **{name: value[rows] for name, value in some.items() if value is not None})
