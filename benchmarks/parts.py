"""The parts of a batch outside the network, each against literal code: threshold, expansion, alignment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from literal import literal_expansion, literal_threshold
from timing import interleaved
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from owttt.functional import Gaussian, isolated_samples, otsu_threshold, symmetric_kl


def threshold_ratio(rounds: int) -> float:
    """Window of 512: the literal loop over ours."""
    scores = torch.rand(512)
    array = scores.numpy()

    def literal() -> None:
        literal_threshold(array)

    def ours() -> None:
        otsu_threshold(scores)

    return interleaved({"literal": literal, "ours": ours}, 10 * rounds).ratio("literal", "ours")["median"]


def expansion_ratio(rounds: int, dimension: int) -> float:
    """A batch of 128 strong samples: the literal expansion over ours."""
    unit, prototypes, pool = (F.normalize(torch.randn(n, dimension), dim=1) for n in (128, 10, 100))
    known = (unit @ prototypes.T).amax(dim=1)
    scores = 1 - known
    tau, split = torch.tensor(0.0), torch.tensor(0.5)

    def literal() -> None:
        literal_expansion(scores, unit, prototypes, pool, float(tau), float(split))

    def ours() -> None:
        isolated_samples(scores, unit, known, pool, 100, tau, split)

    return interleaved({"literal": literal, "ours": ours}, rounds).ratio("literal", "ours")["median"]


def divergence_ratio(rounds: int, dimension: int) -> float:
    """Symmetric KL with gradient: factorizing the source again over ours."""
    factor = torch.randn(dimension, dimension) / dimension**0.5
    source = Gaussian(torch.zeros(dimension), factor @ factor.T + torch.eye(dimension))
    inverse = source.covariance.inverse()
    mean, covariance = torch.ones(dimension) / 10, (source.covariance * 1.1).requires_grad_()

    def literal() -> None:
        s, t = MultivariateNormal(source.mean, source.covariance), MultivariateNormal(mean, covariance)
        loss: Tensor = kl_divergence(s, t) + kl_divergence(t, s)
        torch.autograd.grad(loss, covariance)

    def ours() -> None:
        torch.autograd.grad(symmetric_kl(source, inverse, Gaussian(mean, covariance)), covariance)

    return interleaved({"literal": literal, "ours": ours}, rounds).ratio("literal", "ours")["median"]


def parts(rounds: int) -> dict[str, float]:
    """Return how many times as long literal code takes as ours, by part."""
    return {
        "threshold, window 512": threshold_ratio(rounds),
        "expansion, 128 rejected, D 64": expansion_ratio(rounds, 64),
        "expansion, 128 rejected, D 2048": expansion_ratio(rounds, 2048),
        "symmetric KL with gradient, D 64": divergence_ratio(10 * rounds, 64),
        "symmetric KL with gradient, D 512": divergence_ratio(rounds, 512),
    }
