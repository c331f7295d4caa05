"""Scores of the unknown, high = unknown: tensors in, tensors out.

cosine       os(z)  = 1 - max_k cos(z, p_k)                     Li et al., ICCV 2023, eq. 2
centered      os'(z) = 1 - max_k cos(z - μ_s, m_k - μ_s)         the same after removing the mean of the source
energy       E(x)   = -log Σ_k exp(l_k)                         Liu et al., NeurIPS 2020
max-softmax  s(x)   = 1 - max_k softmax(l)_k                    Hendrycks & Gimpel, ICLR 2017
pool         OS'(z) = (1 - s_s)·s_s/(s_s + s_u) + s_u·s_u/(s_s + s_u)    Li et al., appendix, for point clouds:
             s_s = max_k cos(z, p_k), s_u the mean of the 10 largest cosines to a pool of strong prototypes

residual     r(z)   = 1 - ‖Vᵀ(z - μ_s)‖² / ‖z - μ_s‖²           what of z no difference between classes explains; V is a
                                                                basis of all m_k - μ_s (after ViM, Wang et al., CVPR
                                                                2022)
depth        d(x)   = mean over c of ((h_c(x) - μ_c) / σ_c)²    how unlike the source's samples x looks to the layers on
                                                                the way (after Dong et al., CVPR 2022)
joint        Σ_s min(2, (s - Q_s(½)) / (Q_s(.9) - Q_s(½)))      of cosine, residual and depth; without BatchNorm, of
                                                                cosine and depth. Q_s are the quantiles of
                                                                what the source's samples score, their difference
                                                                .04 at least

with features z, unit source prototypes p_k, raw class means m_k, logits l, and h_c the mean of channel c in a layer
(`network.depth`), of which the source's samples have mean μ_c and deviation σ_c (a hundredth of the median of all
deviations at least). The three terms of the joint score see
what the others are blind to: the cosine which class a sample is near, the residual directions that no class uses, the
depth what is lost before the features. None counts for more than 2, so that a group that is far off by one of them does
not hide the groups that are less far: what splits the scores in two then splits off all of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt.functional.precision import full_precision, wide

LEAST_UNIT: Final = 0.04
"""What the spread of a term counts as at least. A network that knows its training samples by heart scores all of them
near 0, which says nothing of new ones; where classes differ in every direction, a residual is all rounding."""
MOST: Final = 2.0
"""What a term counts for at most, in units of the source's spread."""
LEAST_DEVIATION: Final = 1e-6
LEAST_SHARE: Final = 0.01
"""What a channel's deviation counts as at least, also as a share of the median of all: of a channel that never changes,
rounding would be all there is to see."""
ALONG: Final = 1e-4
"""The share of the largest singular value from which on a direction counts as one that classes differ in."""


def cosine_similarity(features: Tensor, prototypes: Tensor) -> Tensor:
    """Cosines `(B, K)` of features `(B, D)` to prototypes `(K, D)` of unit length; a zero feature has cosine 0."""
    with full_precision(features.device):
        return F.normalize(wide(features), dim=1) @ prototypes.T


def cosine_score(features: Tensor, prototypes: Tensor) -> Tensor:
    """One minus the cosine to the nearest of the unit prototypes; rounding never takes it below 0."""
    return nearest_score(cosine_similarity(features, prototypes))


def nearest_score(cosines: Tensor) -> Tensor:
    """Return the cosine score, from the cosines `(B, K)` themselves."""
    return (1 - cosines.amax(dim=1)).clamp_min(0)


def centered_score(features: Tensor, class_means: Tensor, mean: Tensor) -> Tensor:
    """Cosine score after subtracting the source mean from features and class means.

    Features behind a ReLU share one large positive direction, which makes all cosines look alike; without it, what
    is left are the directions that tell classes apart.
    """
    return cosine_score(wide(features) - mean, F.normalize(class_means - mean, dim=1))


def class_basis(class_means: Tensor, mean: Tensor) -> Tensor:
    """Return an orthonormal basis `(D, R)` of the directions in which class means `(K, D)` differ."""
    with full_precision(mean.device):
        found = torch.linalg.svd(wide(class_means - mean), full_matrices=False)
    basis: Tensor = found.Vh[ALONG * found.S.amax() < found.S].T
    return basis


def residual_score(features: Tensor, basis: Tensor, mean: Tensor) -> Tensor:
    """Return the share of the squared length of features, seen from the source mean, that is outside of a basis."""
    with full_precision(features.device):
        centered = F.normalize(wide(features) - mean, dim=1)
        inside: Tensor = (centered @ basis).square().sum(dim=1)
    return (1 - inside).clamp_min(0)


def depth_score(means: Tensor, source_mean: Tensor, source_deviation: Tensor) -> Tensor:
    """Return how unlike the source's the channel means `(B, C)` of samples are, in squared deviations.

    Means that are no numbers (a layer overflowed) are infinitely unlike them.
    """
    least = (LEAST_SHARE * source_deviation.median()).clamp_min(LEAST_DEVIATION)
    away: Tensor = (wide(means) - source_mean) / source_deviation.maximum(least)
    return away.square().mean(dim=1).nan_to_num(nan=torch.inf, posinf=torch.inf)


def joint_score(terms: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the sum of scores `(B,)`, each in units of what the source's samples score (quantiles at equal steps)."""
    bounded = []
    for scores, quantiles in terms:
        middle, high = torch.quantile(quantiles, quantiles.new_tensor([0.5, 0.9]))
        bounded.append(((scores - middle) / (high - middle).clamp_min(LEAST_UNIT)).clamp_max(MOST))
    return torch.stack(bounded).sum(dim=0)


def pool_score(features: Tensor, prototypes: Tensor, pool: Tensor, number: int = 10) -> Tensor:
    """Score by source prototypes and a pool `(N, D)` of strong ones, all unit; fewer than `number` where it is smaller.

    It weighs how far a sample is from the known by how near that is, and how near it is to the strong prototypes by
    how near that is. An empty pool leaves the cosine score. Where the largest cosine, or the mean of the ten, is below
    0 (signed features), it counts as 0.
    """
    if not len(pool):
        return cosine_score(features, prototypes)
    known = cosine_similarity(features, prototypes).amax(dim=1).clamp(0, 1)
    strong = cosine_similarity(features, pool).topk(min(number, len(pool)), dim=1).values.mean(dim=1).clamp(0, 1)
    total = known + strong
    mixed = ((1 - known) * known + strong.square()) / total.clamp_min(1e-12)
    return mixed.where(total > 0, 1.0)


def energy_score(logits: Tensor) -> Tensor:
    """Return the free energy of the logits."""
    return -wide(logits).logsumexp(dim=1)


def max_softmax_score(logits: Tensor) -> Tensor:
    """One minus the confidence of the head."""
    return 1 - wide(logits).softmax(dim=1).amax(dim=1)
