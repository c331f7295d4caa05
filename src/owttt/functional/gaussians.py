"""Gaussians of features: a running estimate that stays positive definite, and how far two of them are apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Gaussian(NamedTuple):
    """Mean `(…, D)` and covariance `(…, D, D)`, or variances `(…, D)` where `diagonal` functions are used."""

    mean: Tensor
    covariance: Tensor


def ridge(covariance: Tensor) -> Tensor:
    """Return what is added to both diagonals before they are compared: max(Σ_s)/30, and never quite nothing."""
    return (covariance.amax() / 30).clamp_min(torch.finfo(covariance.dtype).eps)


def add_ridge(covariance: Tensor, amount: Tensor) -> Tensor:
    """Return Σ + amount·I."""
    return covariance + amount * torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)


def inverse(covariance: Tensor) -> Tensor:
    """Return Σ⁻¹ of positive definite matrices `(…, D, D)`, or say that they are not."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if failed.any():
        raise FloatingPointError(
            "A covariance of features is not positive definite: adaptation has diverged. Call reset(), lower the "
            "learning rate."
        )
    return torch.cholesky_inverse(factor)


def running_gaussian(state: Gaussian, features: Tensor, seen: Tensor, horizon: int, diagonal: bool = False) -> Gaussian:
    """Move a Gaussian by a batch of b features; `seen` counts samples so far, this batch included.

        a = 1/max(b, min(seen, horizon));  Δ = f - μ;  d = a·ΣΔ
        μ ← μ + d;  Σ ← Σ + a(ΔᵀΔ - bΣ) - ddᵀ

    The `max(b, ·)` is ours: a·b <= 1 keeps Σ positive semi-definite for any batch size. With the batch mean m, the same
    Σ is (1 - ab)Σ + a·Σ(f - m)(f - m)ᵀ + ab(1 - ab)(m - μ)(m - μ)ᵀ: three terms without a difference, which keeps it
    so in floating point too. Differentiable in `features`.
    """
    batch = len(features)
    rate = 1 / seen.clamp(max=horizon).clamp(min=batch).to(features.dtype)
    share = rate * batch
    mean = features.mean(dim=0)
    inside, between = features - mean, mean - state.mean
    if diagonal:
        scatter, square = inside.square().sum(dim=0), between.square()
    else:
        scatter, square = inside.T @ inside, torch.outer(between, between)
    covariance = (1 - share) * state.covariance + rate * scatter + share * (1 - share) * square
    return Gaussian(state.mean + share * between, covariance)


def gaussian_kl(p: Gaussian, q: Gaussian) -> Tensor:
    """Return KL(p‖q) = ½[tr(Σ_q⁻¹(Σ_p + ΔΔᵀ)) - D + log|Σ_q| - log|Σ_p|] with Δ = μ_p - μ_q."""
    factor_p, factor_q = (torch.linalg.cholesky(g.covariance) for g in (p, q))
    delta = p.mean - q.mean
    spread = p.covariance + delta[..., :, None] * delta[..., None, :]
    trace = (torch.cholesky_inverse(factor_q) * spread).sum(dim=(-2, -1))
    log_ratio = 2 * (_log_diagonal(factor_q) - _log_diagonal(factor_p))
    return (trace - delta.shape[-1] + log_ratio) / 2


def _log_diagonal(factor: Tensor) -> Tensor:
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)


def symmetric_kl(source: Gaussian, source_inverse: Tensor, target: Gaussian) -> Tensor:
    """Return KL(s‖t) + KL(t‖s) = ½[tr(Σ_t⁻¹(Σ_s + ΔΔᵀ)) + tr(Σ_s⁻¹(Σ_t + ΔΔᵀ))] - D.

    The logarithms cancel, and Σ_s⁻¹ is given: it never changes, so it is computed once.
    """
    delta = source.mean - target.mean
    outer = delta[..., :, None] * delta[..., None, :]
    traces = inverse(target.covariance) * (source.covariance + outer) + source_inverse * (target.covariance + outer)
    return traces.sum(dim=(-2, -1)) / 2 - delta.shape[-1]


def symmetric_kl_diagonal(source: Gaussian, target: Gaussian) -> Tensor:
    """Return `symmetric_kl` of Gaussians given by their variances."""
    square = (source.mean - target.mean).square()
    traces = (source.covariance + square) / target.covariance + (target.covariance + square) / source.covariance
    return traces.sum(dim=-1) / 2 - square.shape[-1]


def covariance(features: Tensor) -> Tensor:
    """Return the covariance `(D, D)` of features `(N, D)`, divided by N like the running estimate."""
    centered = features - features.mean(dim=0)
    return centered.T @ centered / len(features)
