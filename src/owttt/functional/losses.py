"""The losses of the methods: tensors in, a scalar out."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt.functional.precision import wide


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy H(softmax(l)) `(B,)` of each row of logits."""
    log_p = wide(logits).log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def information_maximization(logits: Tensor) -> Tensor:
    """Mean H(p_i) - H(p̄): every sample certain, the batch diverse (SHOT).

    p̄ is computed as a logarithm, so that a class nobody is predicted as has a finite gradient.
    """
    log_mean = wide(logits).log_softmax(dim=1).logsumexp(dim=0) - math.log(len(logits))
    diversity = -(log_mean.exp() * log_mean).sum()
    return entropy(logits).mean() - diversity


def information(logits: Tensor) -> Tensor:
    """H(p̄) - mean H(p_i), what SHOT maximizes, to be read and not to be trained with: how much the answers tell.

    Classes may be masked (-inf); answers that are not finite are left out, and nothing is told where none is left.
    """
    p = wide(logits).softmax(dim=1)
    p = p[p.isfinite().all(dim=1)]
    told: Tensor = torch.special.entr(p.mean(dim=0)).sum() - torch.special.entr(p).sum(dim=1).mean()
    return told.nan_to_num()


def known_clustering(similarity: Tensor, temperature: float) -> Tensor:
    """Pull weak samples to their nearest source prototype: mean K-way cross entropy of `similarity / δ` `(n, K)`."""
    return F.cross_entropy(similarity / temperature, similarity.argmax(dim=1))


def unknown_clustering(similarity: Tensor, nearest_unknown: Tensor, temperature: float) -> Tensor:
    """Pull strong samples to their nearest strong prototype and away from the source's.

    Mean (K+1)-way cross entropy to the last class, whose logit is the largest cosine `(n,)` to the pool.
    """
    logits = torch.cat((similarity, nearest_unknown[:, None]), dim=1) / temperature
    last = torch.full((len(logits),), logits.shape[1] - 1, device=logits.device)
    return F.cross_entropy(logits, last)


def mean_discrepancy(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean over dimensions of (μ_a - μ_b)² (TTT++)."""
    return (a - b).square().mean()


def covariance_discrepancy(a: Tensor, b: Tensor) -> Tensor:
    """Return ‖C_a - C_b‖²_F / (4D²) (TTT++, from CORAL)."""
    return (a - b).square().sum() / (4 * a.shape[-1] ** 2)


def supervised_contrastive(features: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Pull samples of a class together on the sphere and push all others away (Khosla et al., NeurIPS 2020).

    Mean over samples i that have others of their class, P(i), of

        -1/|P(i)| Σ_{p ∈ P(i)} log( exp(cos(z_i, z_p)/T) / Σ_{j ≠ i} exp(cos(z_i, z_j)/T) )
    """
    z = F.normalize(wide(features), dim=1)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    log_p = (z @ z.T / temperature).masked_fill(itself, -torch.inf).log_softmax(dim=1)
    same = (labels[:, None] == labels) & ~itself
    mean = log_p.masked_fill(~same, 0).sum(dim=1) / same.sum(dim=1).clamp_min(1)
    return -mean.sum() / same.any(dim=1).sum().clamp_min(1)


def unit_logits(logits: Tensor, temperature: float) -> Tensor:
    """Return l / (T·‖l‖), whose cross entropy is LogitNorm's loss (Wei et al., ICML 2022); zeros stay zeros."""
    return F.normalize(wide(logits), dim=1) / temperature
