"""The threshold that splits scores in two modes (eq. 3 of the paper; Otsu, 1979).

Over 100 candidates τ, group 0 = {os < τ} and group 1 = {os >= τ}, the first minimum of

    weighted    w_0·var_0 + w_1·var_1      what the authors' program minimises, true Otsu
    unweighted       var_0 +     var_1      what the paper prints

A candidate that leaves a group empty does not count. If none is left (one sample, all scores in one bin) there is
nothing to split and the threshold is +inf: nothing is rejected.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owttt.functional.precision import widest

CANDIDATES = 100


def threshold_candidates(scores: Tensor) -> Tensor:
    """Candidates 0, .01, …, .99 where all scores lie in [0, 1]; else 100 equal steps from the least score up."""
    low, high = scores.amin(), scores.amax()
    unit = (low >= 0) & (high <= 1)
    steps = torch.arange(CANDIDATES, device=scores.device, dtype=scores.dtype) / CANDIDATES
    return torch.where(unit, steps, low + (high - low) * steps)


def otsu_threshold(scores: Tensor, *, weighted: bool = True) -> Tensor:
    """Return the candidate that splits scores `(N,)` best, or +inf where none does.

    Sorting and prefix sums give all variances at once: n·var = Σ s² - (Σ s)²/n, on scores shifted to mean zero.
    """
    ordered = scores.sort().values
    candidates = threshold_candidates(scores)
    lower = torch.searchsorted(ordered, candidates)
    upper = len(ordered) - lower

    exact = ordered.to(widest(scores.device))
    exact = exact - exact.mean()
    moments = torch.stack((exact, exact.square())).cumsum(dim=1)
    moments = torch.cat((moments.new_zeros(2, 1), moments), dim=1)
    sum_0, square_0 = moments[:, lower]
    sum_1, square_1 = moments[:, -1:] - moments[:, lower]
    spread_0 = square_0 - sum_0.square() / lower
    spread_1 = square_1 - sum_1.square() / upper

    cost = (spread_0 + spread_1) / len(ordered) if weighted else spread_0 / lower + spread_1 / upper
    splits = (lower > 0) & (upper > 0)
    cost = torch.where(splits, cost, torch.inf)
    rounding = moments[1, -1] * torch.finfo(exact.dtype).eps * 64
    first = (cost <= cost.amin() + rounding).int().argmax()
    return torch.where(splits.any(), candidates[first], torch.inf)
