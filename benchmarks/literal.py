"""OWTTT as its authors' program does a batch, to be timed against ours: nothing here is saved or shared.

Three forward passes (judge, align, predict), a hundred passes over the window for every threshold, a product of the
batch with the pool for every sample that is looked at, and Gaussians of torch.distributions that factorize the source
again in every batch. Written from the description of the procedure; only its faults that crash are left out.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

import owttt
from owttt.network.features import FeatureExtractor
from owttt.network.norm import moving_statistics

DELTA, WINDOW, POOL, HORIZON = 0.1, 512, 100, 1280


def literal_threshold(scores: np.ndarray) -> float:
    """One hundred passes over the window."""
    best, least = np.inf, np.inf
    for tau in np.arange(100) / 100:
        above = scores >= tau
        share = above.mean()
        if 0 < share < 1:
            cost = (1 - share) * scores[~above].var() + share * scores[above].var()
            if cost < least:
                best, least = float(tau), cost
    return best


def literal_expansion(
    scores: Tensor, unit: Tensor, prototypes: Tensor, pool: Tensor, tau: float, split: float
) -> Tensor:
    """A product of the whole batch with the whole pool for every visited sample."""
    rest = scores.clone()
    while True:
        extended = 1 - (unit @ torch.cat((prototypes, pool)).T).amax(dim=1)
        index = int(rest.argmax())
        if rest[index] <= tau:
            return pool
        rest[index] = -torch.inf
        if extended[index] > split:
            pool = torch.cat((pool, unit[index : index + 1]))[-POOL:]


def literal_kl(source: owttt.SourceStats, mean: Tensor, covariance: Tensor) -> Tensor:
    """KL in both directions, the source factorized again; the ridge is ten times the authors'.

    Theirs does not keep the covariance of few features of an untrained network positive definite in single precision.
    """
    ridge = torch.maximum(source.covariance.max(), covariance.detach().abs().max()) / 3 * torch.eye(len(mean))
    s = MultivariateNormal(source.mean, (source.covariance + source.covariance.T) / 2 + ridge)
    t = MultivariateNormal(mean, (covariance + covariance.T) / 2 + ridge)
    distance: Tensor = kl_divergence(s, t) + kl_divergence(t, s)
    return distance


class Literal:
    """The authors' program, batch by batch; call it with a batch and it answers after having learned."""

    def __init__(self, network: FeatureExtractor, source: owttt.SourceStats, lr: float, *, half: bool = False) -> None:
        self.network = copy.deepcopy(network).eval().requires_grad_(True)
        self.source = source
        self.half = half
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=lr, momentum=0.9)
        self.pool = source.prototypes[:0]
        self.windows: list[list[float]] = [[], []]
        self.mean, self.covariance, self.seen = source.mean, source.covariance, 0

    def __call__(self, x: Tensor) -> Tensor:
        """Judge, expand, align, cluster, step, judge again."""
        features = self.network(x).features
        unit = F.normalize(features, dim=1)
        scores = 1 - (unit @ self.source.prototypes.T).amax(dim=1).detach()
        tau = self._tau(scores, 0)
        weak, strong = scores < tau, scores >= tau
        before = self.pool
        if strong.any():
            self._expand(unit.detach(), scores, tau)
        self.optimizer.zero_grad()
        loss = self._aligned(x[weak]) if weak.any() else unit.new_zeros(())
        if len(before):
            loss = loss + self._clustered(unit, scores, weak, strong, before)
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        with torch.no_grad():
            unit = F.normalize(self.network(x).features, dim=1)
        cosines = unit @ self.source.prototypes.T
        known = 1 - cosines.amax(dim=1) <= self._tau(1 - cosines.amax(dim=1), 1)
        return torch.where(known, cosines.argmax(dim=1), -1)

    def _tau(self, scores: Tensor, window: int) -> float:
        """Push scores into a window and split it; half of the batch is rejected if all rounds are to do the same."""
        self.windows[window] = (self.windows[window] + scores.tolist())[-WINDOW:]
        tau = literal_threshold(np.array(self.windows[window]))
        return float(scores.median()) if self.half else tau

    def _expand(self, unit: Tensor, scores: Tensor, tau: float) -> None:
        strong = scores >= tau
        extended = 1 - (unit[strong] @ torch.cat((self.source.prototypes, self.pool)).T).amax(dim=1)
        split = literal_threshold(extended.numpy())
        self.pool = literal_expansion(
            scores[strong], unit[strong], self.source.prototypes, self.pool, tau, split if np.isfinite(split) else 0.0
        )

    def _aligned(self, x: Tensor) -> Tensor:
        with moving_statistics(self.network):
            features = self.network(x).features
        self.seen += len(features)
        a = 1 / max(len(features), min(self.seen, HORIZON))
        difference = features - self.mean
        step = a * difference.sum(dim=0)
        mean = self.mean + step
        outer = difference.T @ difference - len(features) * self.covariance
        covariance = self.covariance + a * outer - torch.outer(step, step)
        self.mean, self.covariance = mean.detach(), covariance.detach()
        return literal_kl(self.source, mean, covariance) / 2

    def _clustered(self, unit: Tensor, scores: Tensor, weak: Tensor, strong: Tensor, pool: Tensor) -> Tensor:
        known = unit @ self.source.prototypes.T / DELTA
        unknown = torch.cat((known, (unit @ pool.T).amax(dim=1, keepdim=True) / DELTA), dim=1)
        low = scores[weak].median() if weak.any() else scores.new_tensor(torch.inf)
        high = scores[strong].median() if strong.any() else scores.new_tensor(torch.inf)
        near, far = weak & (scores <= low), strong & (scores >= high)
        losses = [F.cross_entropy(known[near], known[near].argmax(dim=1))] if near.any() else []
        if far.any():
            losses.append(F.cross_entropy(unknown[far], torch.full((int(far.sum()),), known.shape[1])))
        return torch.stack(losses).sum() if losses else unit.new_zeros(())
