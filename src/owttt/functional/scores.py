"""Scores of the unknown, high = unknown: tensors in, tensors out.

cosine       os(z)  = 1 - max_k cos(z, p_k)                     Li et al., ICCV 2023, eq. 2
centred      os'(z) = 1 - max_k cos(z - μ_s, m_k - μ_s)         the same after removing the mean of the source
energy       E(x)   = -log Σ_k exp(l_k)                         Liu et al., NeurIPS 2020
max-softmax  s(x)   = 1 - max_k softmax(l)_k                    Hendrycks & Gimpel, ICLR 2017

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
    return (1 - cosine_similarity(features, prototypes).amax(dim=1)).clamp_min(0)


def centred_score(features: Tensor, class_means: Tensor, mean: Tensor) -> Tensor:
    """Cosine score after subtracting the source mean from features and class means.

    Features behind a ReLU share one large positive direction, which makes all cosines look alike; without it, what
    is left are the directions that tell classes apart.
    """
    return cosine_score(wide(features) - mean, F.normalize(class_means - mean, dim=1))


def energy_score(logits: Tensor) -> Tensor:
    """Return the free energy of the logits."""
    return -wide(logits).logsumexp(dim=1)


def max_softmax_score(logits: Tensor) -> Tensor:
    """One minus the confidence of the head."""
    return 1 - wide(logits).softmax(dim=1).amax(dim=1)
