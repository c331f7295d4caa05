"""The threshold that splits scores in two modes (eq. 3 of the paper; Otsu, 1979).

Over the candidates τ, group 0 = {os < τ} and group 1 = {os >= τ}, the first minimum of

    weighted    w_0·var_0 + w_1·var_1      what the authors' program minimizes, true Otsu
    unweighted       var_0 +     var_1      what the paper prints

Candidates are 0, .01, …, .99 as in the paper, going on in the same steps where scores exceed 1 (cosines of signed
features); for scores without a natural range, 100 equal steps over the range they have, whose ends lie at most five
times the middle 90 % beyond these: one absurd score must not stretch the steps. A candidate that leaves a group
empty does not count. If none is left (one sample, all scores in one bin) there is nothing to split and the threshold is
+inf: nothing is rejected.

A threshold by evidence (ours) asks first whether anything is unknown at all. With Q the quantiles of the source's own
scores, R those of its samples that are classified right (rejecting others costs no right answer), and F the
distribution of the n scores at hand, Otsu splits these scores, cut at C so that a far group counts as no farther than
beyond C. How much the source's scores tell depends on how far the lowest fifth has moved from theirs:

    moved        m = max(0, F⁻¹(.2) - Q(.2)) / (Q(.85) - Q(.2))
    cut          C = Q(.5) + (1.5 + 3m)·(Q(.99) - Q(.5))
    excess       e = mean over p = .95, .98 of p - F(Q(p))            how many more score high than of the source's
    unexplained  u = mean over p = .5, .6, .7 of 1 - F(Q(p))/p        the share that scores unlike the source
    separation   d = (mean_1 - mean_0) / sqrt((var_0 + var_1)/2)      of the split's two groups

    one mode     e <= .05 + .4/sqrt(n)  and  u <= .11 + 1.6/sqrt(n)  and  (d <= 4.5 or one group is of less than 8):
                 (if Q are of h samples that the network was not trained on, .005 for .05, .04 for .11, 1/n + 1/h for
                 1/n)
                 τ = R(1 - budget) + (median - Q(.5), from 0 to Q(.75) - Q(.5))
    else         τ = split, at least R(1 - max(.08, budget, u - .2)): of right answers like the source's no more are
                 lost than that; corruption alone makes u as large as .2

Where a method has corrected the shift of a stream, by normalizing with statistics of the known samples in it, these
score like the source's under nearly any corruption, and unknown samples that look like them score only a little higher:
there may be one mode however many are unknown. The budget is what a split may cost there, .08 at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CANDIDATES = 100
REACH = 5.0
"""How far the range of scores may go beyond their middle 90 %, in widths of it."""
HIGH = np.array((0.95, 0.98))
"""The source's quantiles beyond which few unknown samples show: hardly anything else scores there."""
MIDDLE = np.array((0.5, 0.6, 0.7))
"""Those beyond which many show that score little higher than known ones."""
EXCESS = 0.05
EXCESS_OF_NEW = 0.005
UNEXPLAINED = 0.11
UNEXPLAINED_OF_NEW = 0.04
"""What e and u may be where nothing is unknown: networks score what they were trained on lower than what is new. Less
if the source's scores are of samples not trained on."""
CHANCE = 0.4
CHANCE_UNEXPLAINED = 1.6
"""What one over the square root of the number of scores adds to that: about two standard errors."""
SEPARATION = 4.5
"""Two halves of one mode, parted by Otsu, are 2.6 to 3.9 deviations apart."""
LEAST_GROUP = 8
"""Scores that a group must have for its variance to tell anything."""
CUT = 1.5
FAR = 1e6
ANCHOR = 0.85
"""The source's quantile that is one unit away from its lowest fifth."""
LOST = 0.08
EXPLAINED = 0.2
"""The share of right answers that a split costs at most: so many, or u less what corruption alone explains. It is the
least budget, too, where the shift of a stream is corrected and nothing speaks for unknown samples."""
LOWEST = 0.2
"""The share of a window that is taken for known when it comes to how far scores have moved."""


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


def evidence_threshold(
    scores: Tensor,
    quantiles: Tensor,
    budget: float,
    right: Tensor | None = None,
    held_out: int = 0,
    *,
    corrected: bool = False,
) -> Tensor:
    """Return the threshold of scores `(N,)` by evidence, see above.

    `quantiles` are the source's scores at equal steps from 0 to 1, increasing; `right` those of its samples that are
    classified right, if these are known; `budget` is the share of the latter that is rejected where nothing speaks for
    unknown samples; `held_out` the number h of samples that all these are of, if the network was not trained on them;
    `corrected` says whether the shift of the stream is. A score of exactly the R that bounds the threshold is kept:
    where all score alike, nothing is rejected.
    """
    at = _quantiles(quantiles)
    right_at = at if right is None else _quantiles(right)
    ordered = np.sort(scores.detach().cpu().double().numpy())
    split = _split(ordered, at)
    if not math.isfinite(split) or _one_mode(ordered, at, split, held_out):
        shift = min(max(0.0, float(np.median(ordered)) - at(0.5)), at(0.75) - at(0.5))
        last = right_at(1 - (max(LOST, budget) if corrected else budget)) + shift
    else:
        last = max(split, right_at(1 - max(LOST, budget, _unexplained(ordered, at) - EXPLAINED)))
    found = scores.new_tensor(last)
    return torch.nextafter(found, found.new_tensor(math.inf))


def _split(ordered: NDArray[np.floating], at: Callable[[float], float]) -> float:
    """Return where Otsu splits sorted scores, a far group counting as no farther than beyond C; +inf if nowhere."""
    rise = max(0.0, float(np.quantile(ordered, LOWEST)) - at(LOWEST))
    moved = min(rise / max(at(ANCHOR) - at(LOWEST), np.finfo(np.float64).tiny), FAR) if rise else 0.0
    cut = at(0.5) + CUT * (1 + 2 * moved) * (at(0.99) - at(0.5))
    return float(otsu_threshold(torch.from_numpy(ordered).clamp(max=cut), unit=False))


def _one_mode(ordered: NDArray[np.floating], at: Callable[[float], float], split: float, held_out: int) -> bool:
    """Whether nothing speaks for unknown samples among sorted scores."""
    chance = math.sqrt(1 / len(ordered) + (1 / held_out if held_out else 0.0))
    few, alike = (EXCESS_OF_NEW, UNEXPLAINED_OF_NEW) if held_out else (EXCESS, UNEXPLAINED)
    return (
        _excess(ordered, at) <= few + CHANCE * chance
        and _unexplained(ordered, at) <= alike + CHANCE_UNEXPLAINED * chance
        and not _apart(ordered, split)
    )


def excess(scores: Tensor, quantiles: Tensor) -> float:
    """Return e: how many more of scores `(N,)` lie beyond the source's high quantiles than of the source's own."""
    return _excess(np.sort(scores.detach().cpu().double().numpy()), _quantiles(quantiles))


def _quantiles(values: Tensor) -> Callable[[float], float]:
    """Return the function of a share that quantiles at equal steps from 0 to 1 are values of."""
    known = values.detach().cpu().double().numpy()
    steps = np.linspace(0, 1, len(known))
    return lambda share: float(np.interp(share, steps, known))


def _excess(ordered: NDArray[np.floating], at: Callable[[float], float]) -> float:
    """Return how many more of sorted scores lie beyond the source's high quantiles than of the source's own, e."""
    return float(np.mean(HIGH - _below(ordered, at, HIGH)))


def _unexplained(ordered: NDArray[np.floating], at: Callable[[float], float]) -> float:
    """Return the share of sorted scores that are unlike the source's, u."""
    return float(np.mean(1 - _below(ordered, at, MIDDLE) / MIDDLE))


def _below(
    ordered: NDArray[np.floating], at: Callable[[float], float], levels: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Return the shares of sorted scores up to some of the source's quantiles."""
    return np.searchsorted(ordered, [at(level) for level in levels], side="right") / len(ordered)


def _apart(ordered: NDArray[np.floating], split: float) -> bool:
    """Whether a split parts sorted scores in two groups that are clearly apart."""
    lower, upper = np.split(ordered, [np.searchsorted(ordered, split)])
    if min(len(lower), len(upper)) < LEAST_GROUP:
        return False
    spread = math.sqrt((lower.var() + upper.var()) / 2)
    return float(upper.mean() - lower.mean()) > SEPARATION * spread
