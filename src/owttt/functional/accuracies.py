"""Open-world metrics from labels and scores. Names carry their convention, because the field does not agree on them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def harmonic_mean(a: Tensor, b: Tensor) -> Tensor:
    """Return 2ab/(a+b), 0 where both are 0."""
    return torch.where(a + b == 0, 0.0, 2 * a * b / (a + b))


def auroc(scores: Tensor, positive: Tensor) -> Tensor:
    """Return P(score of a positive > score of a negative) + ½P(equal); NaN where either is missing."""
    negatives, positives = scores[~positive].sort().values, scores[positive]
    if len(negatives) == 0 or len(positives) == 0:
        return scores.new_tensor(torch.nan)
    below = torch.searchsorted(negatives, positives, right=False)
    not_above = torch.searchsorted(negatives, positives, right=True)
    return (below + not_above).to(scores.dtype).mean() / (2 * len(negatives))


def fpr_at_tpr(scores: Tensor, positive: Tensor, tpr: float = 0.95) -> Tensor:
    """Return the share of negatives at or above the highest threshold that catches `tpr` of the positives."""
    negatives, positives = scores[~positive], scores[positive].sort(descending=True).values
    if len(negatives) == 0 or len(positives) == 0:
        return scores.new_tensor(torch.nan)
    needed = -int(-tpr * len(positives) // 1)
    return (negatives >= positives[needed - 1]).to(scores.dtype).mean()


def oscr(scores: Tensor, correct: Tensor, unknown: Tensor) -> Tensor:
    """Return the area under the open-set classification curve (Dhamija et al., NeurIPS 2018).

    Over thresholds on the score: the share of known samples that are accepted *and* right, against the share of
    unknown samples that are accepted. It equals the mean over pairs of `right·(1[s_known < s_unknown] + ½1[equal])`.
    """
    knowns, unknowns = scores[~unknown], scores[unknown]
    if len(knowns) == 0 or len(unknowns) == 0:
        return scores.new_tensor(torch.nan)
    right = knowns[correct[~unknown]].sort().values
    below = torch.searchsorted(right, unknowns, right=False)
    not_above = torch.searchsorted(right, unknowns, right=True)
    return (below + not_above).to(scores.dtype).mean() / (2 * len(knowns))


def expected_calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> Tensor:
    """Return Σ_b n_b/n·|accuracy_b - confidence_b| over equal bins of confidence (Guo et al., ICML 2017)."""
    if len(confidence) == 0:
        return confidence.new_tensor(torch.nan)
    index = (confidence * bins).long().clamp(0, bins - 1)
    gap = torch.zeros(bins, dtype=confidence.dtype, device=confidence.device)
    gap.index_add_(0, index, correct.to(confidence.dtype) - confidence)
    return gap.abs().sum() / len(confidence)


def effective_classes(labels: Tensor, num_classes: int) -> float:
    """Return the effective number of classes among labels `(N,)`: exp(H) of their shares, from 1 to K.

    NaN of none.
    """
    if not len(labels):
        return math.nan
    counts = torch.bincount(labels.cpu(), minlength=num_classes).double()
    shares = counts / counts.sum().clamp_min(1)
    return float(torch.special.entr(shares).sum().exp())
