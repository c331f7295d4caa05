"""The threshold that splits scores in two modes (eq. 3 of the paper; Otsu, 1979).

Over the candidates τ, group 0 = {os < τ} and group 1 = {os >= τ}, the first minimum of

    weighted    w_0·var_0 + w_1·var_1      what the authors' program minimizes, true Otsu
    unweighted       var_0 +     var_1      what the paper prints

Candidates are 0, .01, …, .99 as in the paper, going on in the same steps where scores exceed 1 (cosines of signed
features); for scores without a natural range, 100 equal steps over the range they have, whose ends lie at most five
times the middle 90 % beyond these: one absurd score must not stretch the steps. A candidate that leaves a group
empty does not count. If none is left (one sample, all scores in one bin) there is nothing to split and the threshold is
+inf: nothing is rejected.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

CANDIDATES = 100
REACH = 5.0
"""How far the range of scores may go beyond their middle 90 %, in widths of it."""


def threshold_candidates(low: float, high: float, *, unit: bool) -> NDArray[np.floating]:
    """Return the candidates for scores between `low` and `high`."""
    if not unit:
        return low + (high - low) * (np.arange(CANDIDATES) / CANDIDATES)
    return np.arange(max(CANDIDATES, math.ceil(CANDIDATES * high - 1e-3))) / CANDIDATES


def robust_range(ordered: NDArray[np.floating]) -> tuple[float, float]:
    """Return the range of sorted scores, cut where few of them lie far beyond the rest."""
    last = len(ordered) - 1
    lower, upper = float(ordered[math.floor(0.05 * last)]), float(ordered[math.ceil(0.95 * last)])
    reach = REACH * (upper - lower)
    low, high = float(ordered[0]), float(ordered[-1])
    return (max(low, lower - reach), min(high, upper + reach)) if reach else (low, high)


def otsu_threshold(scores: Tensor, *, weighted: bool = True, unit: bool = True) -> Tensor:
    """Return the candidate that splits scores `(N,)` best, or +inf where none does.

    Sorting and prefix sums give all splits at once. With scores shifted to mean zero and S, Q the sums of scores and
    squares in group 0, w_0·var_0 + w_1·var_1 is a constant minus S²/(n_0·n_1). Costs that differ by rounding only count
    as equal.

    A few hundred numbers are sorted and summed faster by numpy than by as many kernels as there are steps here, on
    any device; candidates have the scores' own precision, so that comparing with the result is consistent.
    """
    ordered = np.sort(scores.detach().cpu().numpy())
    number = len(ordered)
    low, high = (float(ordered[0]), float(ordered[-1])) if unit else robust_range(ordered)
    candidates = threshold_candidates(low, high, unit=unit).astype(ordered.dtype)
    lower = np.searchsorted(ordered, candidates)
    splits = (lower > 0) & (lower < number)
    if not splits.any():
        return scores.new_tensor(math.inf)

    n_0 = lower[splits]
    n_1 = number - n_0
    exact = ordered.astype(np.float64)
    exact -= exact.mean()
    sums = exact.cumsum()[n_0 - 1] ** 2
    if weighted:
        cost = -sums / (n_0 * n_1)
        scale = -cost.min()
    else:
        squares = (exact**2).cumsum()
        inside = squares[n_0 - 1]
        cost = (inside - sums / n_0) / n_0 + (squares[-1] - inside - sums / n_1) / n_1
        scale = squares[-1] / number
    first = np.argmax(cost <= cost.min() + 64 * np.finfo(np.float64).eps * scale)
    return scores.new_tensor(candidates[splits][first].item())
