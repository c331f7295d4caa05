"""Points missing, or too many, around some places."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from owttt.data.corruptions.clouds.points import nearest, one_alive, refilled, share, some, take
from owttt.data.corruptions.randomness import Randomness

HOLE: Final = 30
REGION: Final = 100
"""Published numbers of points that a hole and a region have."""


def cutout(clouds: Tensor, holes: int, random: Randomness) -> Tensor:
    """Cut holes: each time a point and its nearest neighbors."""
    alive = torch.ones(clouds.shape[:2], dtype=torch.bool)
    for _ in range(holes):
        alive = alive & ~nearest(clouds, one_alive(alive, random), share(HOLE, clouds.shape[1]), alive)
    return refilled(clouds, alive, random)


def density(clouds: Tensor, regions: int, random: Randomness) -> Tensor:
    """Thin out regions: three quarters of a point's nearest neighbors go."""
    alive = torch.ones(clouds.shape[:2], dtype=torch.bool)
    for _ in range(regions):
        region = nearest(clouds, one_alive(alive, random), share(REGION, clouds.shape[1]), alive)
        rank = random.uniform(0, 1, clouds.shape[1]).masked_fill(~region, torch.inf).argsort(dim=1).argsort(dim=1)
        alive = alive & ~(region & (rank < (0.75 * region.sum(dim=1, keepdim=True)).long()))
    return refilled(clouds, alive, random)


def density_inc(clouds: Tensor, regions: int, random: Randomness) -> Tensor:
    """Keep regions whole and thin out the rest.

    Published, a region is 100 of 2,048 points, kept among 1,024. Here the cloud has the final number already: a region
    is half as many of its points, and all of them come twice.
    """
    points = clouds.shape[1]
    free = torch.ones(clouds.shape[:2], dtype=torch.bool)
    parts = []
    for _ in range(regions):
        region = nearest(clouds, one_alive(free, random), share(REGION // 2, points), free)
        members = region.long().argsort(dim=1, descending=True, stable=True)[:, : share(REGION // 2, points)]
        parts += [take(clouds, members)] * 2
        free = free & ~region
    dense = torch.cat(parts, dim=1)[:, :points]
    rest = refilled(clouds, free, random)
    return torch.cat((dense, take(rest, some(random, points, points - dense.shape[1]))), dim=1)
