"""Scores of the unknown, high = unknown: tensors in, tensors out.

cosine       os(z)  = 1 - max_k cos(z, p_k)                     Li et al., ICCV 2023, eq. 2
centered      os'(z) = 1 - max_k cos(z - μ_s, m_k - μ_s)         the same after removing the mean of the source
energy       E(x)   = -log Σ_k exp(l_k)                         Liu et al., NeurIPS 2020
max-softmax  s(x)   = 1 - max_k softmax(l)_k                    Hendrycks & Gimpel, ICLR 2017
pool         OS'(z) = (1 - s_s)·s_s/(s_s + s_u) + s_u·s_u/(s_s + s_u)    Li et al., appendix, for point clouds:
             s_s = max_k cos(z, p_k), s_u the mean of the 10 largest cosines to a pool of strong prototypes

with features z, unit source prototypes p_k, raw class means m_k and logits l.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from owttt.functional.precision import full_precision, wide


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
