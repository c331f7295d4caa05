"""Two groups of points, as a mixture of two Gaussians tells them apart (EM; Dempster, Laird and Rubin, 1977).

Points are seen in the plane of their first principal axes, each in units of its deviation. In round after round every
group has the share, mean and covariance of its points, a point p belonging to group g by the share

    r_g(p) = π_g·N(p; μ_g, Σ_g) / Σ_h π_h·N(p; μ_h, Σ_h)
    Σ_g    = (W·S_g + w·v·I) / (W + w) + ε·I,       W = Σ_p r_g(p)

with S_g the covariance of what is in the group: a group of few points is drawn to a small ball of variance v. A tight
group inside a wide one is found, which the nearest of two means would not. EM ends where it begins, more or less, so it
begins in many ways, at cuts along every axis. Nothing is random.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from owttt.functional.precision import full_precision, wide

AXES: Final = 4
"""Principal axes that groups are looked for along."""
ROUNDS: Final = 20
TAIL: Final = 1.3
MIDDLE: Final = 0.35
"""Where a start cuts an axis, in deviations: at the mean, at either tail, around the middle."""
SURE: Final = 0.98
"""How surely points belong to their group at a start."""
BALL: Final = 0.1
BALL_POINTS: Final = 10.0
"""The variance v that few points are drawn to, and how many points w it counts for."""
LEAST_VARIANCE: Final = 1e-4
LEAST_POINTS: Final = 4


class Plane(NamedTuple):
    """The principal axes of points: `center` `(d,)`, `axes` `(d, A)` in which these have deviations of 1."""

    center: Tensor
    axes: Tensor

    def seen(self, points: Tensor) -> Tensor:
        """Return points `(N, d)` in this plane, `(N, A)`."""
        return (wide(points) - self.center) @ self.axes


class Component(NamedTuple):
    """A Gaussian of a mixture: log of its share, mean `(…, A)`, covariance `(…, A, A)`."""

    log_share: Tensor
    mean: Tensor
    covariance: Tensor

    def distance(self, points: Tensor) -> Tensor:
        """Return (p - μ)ᵀ Σ⁻¹ (p - μ) of points `(N, A)`: `(…, N)`."""
        away = (points - self.mean[..., None, :]).transpose(-1, -2)
        length: Tensor = torch.linalg.solve_triangular(self._root, away, upper=False).square().sum(dim=-2)
        return length

    def log_density(self, points: Tensor) -> Tensor:
        """Return log(π·N(p; μ, Σ)) of points `(N, A)`, but for a constant: `(…, N)`."""
        volume = self._root.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        density: Tensor = self.log_share[..., None] - volume[..., None] - self.distance(points) / 2
        return density

    @property
    def _root(self) -> Tensor:
        root: Tensor = torch.linalg.cholesky(self.covariance)
        return root


def plane_of(points: Tensor) -> Plane:
    """Return the plane of the first `AXES` principal axes of points `(N, d)`; axes without any spread are left out."""
    center = wide(points).mean(dim=0)
    found = torch.linalg.svd(wide(points) - center, full_matrices=False)
    deviations = found.S[:AXES] / len(points) ** 0.5
    some = deviations > 1e-6 * deviations[:1].clamp_min(1e-12)
    return Plane(center, found.Vh[:AXES].T * (some / deviations.where(some, torch.ones_like(deviations))))


def component_of(points: Tensor, belongs: Tensor) -> Component:
    """Return the component of points `(N, A)` that belong to it by shares `(…, N)`."""
    number = belongs.sum(dim=-1).clamp_min(1e-6)
    mean = (belongs @ points) / number[..., None]
    away = points - mean[..., None, :]
    spread = (belongs[..., None] * away).transpose(-1, -2) @ away
    unit = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
    covariance = (spread + BALL_POINTS * BALL * unit) / (number + BALL_POINTS)[..., None, None]
    return Component((number / points.shape[0]).log(), mean, covariance + LEAST_VARIANCE * unit)


def two_groups(points: Tensor) -> Tensor:
    """Return ways to part points `(N, d)` in two groups, the likeliest first: `(S, N)` bool, True for the second group.

    Ways that come out alike are one. Where points are too few or all alike, there is none.
    """
    with full_precision(points.device):
        return _ways(points)


def _ways(points: Tensor) -> Tensor:
    seen = plane_of(points).seen(points)
    second = torch.cat((seen > 0, seen > TAIL, seen < -TAIL, seen.abs() < MIDDLE), dim=1).T
    second = second[_both_there(second)]
    if not len(second):
        return second
    belongs = (1 - SURE) / 2 + second.to(seen.dtype) * SURE
    for _ in range(ROUNDS):
        one, two = (component_of(seen, part).log_density(seen) for part in (1 - belongs, belongs))
        belongs = torch.sigmoid(two - one)
    likelihood = torch.logaddexp(one, two).mean(dim=1)
    second = (belongs > 0.5)[likelihood.argsort(descending=True, stable=True)]
    return _different(second[_both_there(second)])


def _both_there(second: Tensor) -> Tensor:
    """Return which ways leave enough points in either group."""
    counts = second.sum(dim=1)
    return (counts >= LEAST_POINTS) & (counts <= second.shape[1] - LEAST_POINTS)


def _different(ways: Tensor) -> Tensor:
    """Return ways to part points of which no two are the same, whichever group is called the second."""
    same = ways == ways[:, :1]
    alike = (same[:, None] == same).all(dim=2).tril(diagonal=-1).any(dim=1)
    return ways[~alike]
