"""Noise: points moved, points added."""

from __future__ import annotations

import torch
from torch import Tensor

from owttt.data.corruptions.clouds.points import in_cube, some, take
from owttt.data.corruptions.randomness import Randomness


def uniform(clouds: Tensor, reach: float, random: Randomness) -> Tensor:
    """Move every point by U(−reach, reach) in each direction."""
    return in_cube(clouds + random.uniform(-reach, reach, clouds.shape[1], 3))


def gaussian(clouds: Tensor, deviation: float, random: Randomness) -> Tensor:
    """Move every point by N(0, deviation²) in each direction, within the cube."""
    return (clouds + deviation * random.normal(clouds.shape[1], 3)).clamp(-1, 1)


def impulse(clouds: Tensor, share: float, random: Randomness) -> Tensor:
    """Move a share of the points by ±0.1 in each direction."""
    points = clouds.shape[1]
    hit = some(random, points, int(points * share))
    kick = 0.2 * random.integers(0, 2, hit.shape[1], 3).float() - 0.1
    return in_cube(clouds.scatter_add(1, hit[..., None].expand(-1, -1, 3), kick))


def upsampling(clouds: Tensor, share: float, random: Randomness) -> Tensor:
    """Add copies of a share of the points, moved by U(−0.05, 0.05), and draw as many as there were."""
    points = clouds.shape[1]
    copied = take(clouds, some(random, points, int(points * share)))
    copied = copied + random.uniform(-0.05, 0.05, copied.shape[1], 3)
    return _as_many(in_cube(torch.cat((clouds, copied), dim=1)), points, random)


def background(clouds: Tensor, share: float, random: Randomness) -> Tensor:
    """Add points anywhere in the cube, a share of those there are, and draw as many as there were."""
    points = clouds.shape[1]
    added = random.uniform(-1, 1, int(points * share), 3)
    return _as_many(in_cube(torch.cat((clouds, added), dim=1)), points, random)


def _as_many(clouds: Tensor, points: int, random: Randomness) -> Tensor:
    return take(clouds, some(random, clouds.shape[1], points))
