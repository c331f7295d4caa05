"""Gaussians of features: a running estimate that stays positive definite, and how far two of them are apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


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
    """Return Σ⁻¹ of positive definite matrices `(…, D, D)`, or say that they are not.

    It is WᵀW with W = L⁻¹, Σ = LLᵀ: `torch.cholesky_inverse` is thirty times as slow for D = 2048 (torch 2.13.0, x86).
    """
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if failed.any():
        raise FloatingPointError(
            "A covariance of features is not positive definite: adaptation has diverged. Call reset(), lower the "
            "learning rate."
        )
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    root = torch.linalg.solve_triangular(factor, identity, upper=False)
    inverted: Tensor = root.transpose(-2, -1) @ root
    return inverted


def running_gaussian(state: Gaussian, features: Tensor, seen: Tensor, horizon: int, diagonal: bool = False) -> Gaussian:
    """Move a Gaussian by a batch of b features; `seen` counts samples so far, this batch included.

        a = 1/max(b, min(seen, horizon));  Δ = f - μ;  d = a·ΣΔ
        μ ← μ + d;  Σ ← Σ + a(ΔᵀΔ - bΣ) - ddᵀ

    The `max(b, ·)` is ours: a·b <= 1 keeps Σ positive semi-definite for any batch size. With the batch mean m, the same
    Σ is (1 - ab)Σ + a·Σ(f - m)(f - m)ᵀ + ab(1 - ab)(m - μ)(m - μ)ᵀ: three terms without a difference, which keeps it
    so in floating point too. Differentiable in `features`.
    """
    share = _share(features, seen, horizon)
    rate = share / len(features)
    mean = features.mean(dim=0)
    inside, between = features - mean, mean - state.mean
    if diagonal:
        scatter, square = inside.square().sum(dim=0), between.square()
    else:
        scatter, square = inside.T @ inside, torch.outer(between, between)
    covariance = (1 - share) * state.covariance + rate * scatter + share * (1 - share) * square
    return Gaussian(state.mean + share * between, covariance)


def _share(features: Tensor, seen: Tensor, horizon: int) -> Tensor:
    """Return ab, what a batch counts for."""
    batch = len(features)
    return batch / seen.clamp(max=horizon).clamp(min=batch).to(features.dtype)


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


def alignment(
    features: Tensor,
    state: Gaussian,
    seen: Tensor,
    horizon: int,
    source: Gaussian,
    source_inverse: Tensor,
    amount: Tensor,
) -> tuple[Tensor, Gaussian]:
    """Move a Gaussian by a batch (`running_gaussian`) and return its `symmetric_kl` to the source, and the Gaussian.

    The source's covariance has its ridge already, `amount` is added to the target's. The gradient in `features` is
    taken by hand. With G = ½[Σ_s⁻¹ - Σ_t⁻¹(Σ_s + ΔΔᵀ)Σ_t⁻¹] of Σ_t and g = -(Σ_s⁻¹ + Σ_t⁻¹)Δ of μ_t, a feature has

        2a·G(f - m) + (1/b)[2ab(1 - ab)·G(m - μ) + ab·g]

    so that G is only ever multiplied by the batch, and one inverse is all that costs D³. Automatic differentiation
    multiplies D × D matrices a dozen times.
    """
    with torch.no_grad():
        target = running_gaussian(state, features, seen, horizon)
        share = _share(features, seen, horizon)
        ridged = add_ridge(target.covariance, amount)
    return _distance(features, state.mean, share, target.mean, ridged, *source, source_inverse), target


class _Distance(torch.autograd.Function):
    """`symmetric_kl` of a target that a batch of features has moved, see `alignment`."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        before: Tensor,
        share: Tensor,
        mean: Tensor,
        covariance: Tensor,
        source_mean: Tensor,
        source_covariance: Tensor,
        source_inverse: Tensor,
    ) -> Tensor:
        delta, inverted = source_mean - mean, inverse(covariance)
        ctx.save_for_backward(features, before, share, delta, inverted, source_covariance, source_inverse)
        traces = (inverted * source_covariance).sum() + (source_inverse * covariance).sum()
        return (traces + delta @ (inverted @ delta) + delta @ (source_inverse @ delta)) / 2 - len(delta)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, before, share, delta, inverted, source_covariance, source_inverse = ctx.saved_tensors
        batch, middle = len(features), features.mean(dim=0)
        rows = torch.cat((features - middle, (middle - before)[None]))
        seen = rows @ inverted
        spread = seen @ source_covariance + torch.outer(seen @ delta, delta)
        pulled = (rows @ source_inverse - spread @ inverted) / 2
        common = 2 * share * (1 - share) * pulled[-1] - share * (source_inverse @ delta + inverted @ delta)
        return (gradients[0] * (2 * share * pulled[:-1] + common) / batch, *(None,) * 7)


_distance: Callable[..., Tensor] = _Distance.apply


def symmetric_kl_diagonal(source: Gaussian, target: Gaussian) -> Tensor:
    """Return `symmetric_kl` of Gaussians given by their variances."""
    square = (source.mean - target.mean).square()
    traces = (source.covariance + square) / target.covariance + (target.covariance + square) / source.covariance
    return traces.sum(dim=-1) / 2 - square.shape[-1]


def covariance(features: Tensor) -> Tensor:
    """Return the covariance `(D, D)` of features `(N, D)`, divided by N like the running estimate."""
    centered = features - features.mean(dim=0)
    return centered.T @ centered / len(features)
