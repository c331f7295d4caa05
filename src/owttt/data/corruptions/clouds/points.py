"""What the corruptions share: balls and cubes, neighbors, drawing points."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from owttt.data.corruptions.randomness import Randomness

PUBLISHED: Final = 1024
"""Points of the clouds that the published numbers are for."""


def in_unit_ball(clouds: Tensor) -> Tensor:
    """Return clouds with their center in 0 and their farthest point on the unit sphere."""
    centered = clouds - clouds.mean(dim=1, keepdim=True)
    farthest: Tensor = centered.norm(dim=2).amax(dim=1)
    return centered / farthest.clamp_min(1e-12)[:, None, None]


def in_cube(clouds: Tensor) -> Tensor:
    """Return clouds with their bounding box in the middle and its longest side from −1 to 1, as ModelNet40-C has them.

    Unlike the unit ball it stays where it is when points are thinned out on one side.
    """
    low, high = clouds.amin(dim=1, keepdim=True), clouds.amax(dim=1, keepdim=True)
    longest: Tensor = (high - low).amax(dim=2, keepdim=True)
    return (clouds - (low + high) / 2) * 2 / longest.clamp_min(1e-12)


def standing(clouds: Tensor, upright: int) -> Tensor:
    """Return clouds `(…, 3)` turned so that z is vertical, where another axis was."""
    return clouds.roll(2 - upright, dims=-1)


def share(number: int, points: int) -> int:
    """Return a published number of points for clouds of `points`."""
    return max(1, round(number * points / PUBLISHED))


def evenly(there: int, wanted: int, generator: torch.Generator) -> Tensor:
    """Draw so many of the points that are there, none twice while there are others: `(wanted,)`."""
    rounds = -(-wanted // there)
    return torch.cat([torch.randperm(there, generator=generator) for _ in range(rounds)])[:wanted]


def take(clouds: Tensor, chosen: Tensor) -> Tensor:
    """Return the points `(B, N)` of clouds."""
    return clouds.gather(1, chosen[..., None].expand(-1, -1, 3))


def some(random: Randomness, points: int, number: int) -> Tensor:
    """Draw so many of the points of every cloud, none twice: `(B, number)`."""
    return random.uniform(0, 1, points).argsort(dim=1)[:, :number]


def refilled(clouds: Tensor, kept: Tensor, random: Randomness) -> Tensor:
    """Return the points that are kept, and in the place of the others some of the kept ones again.

    A cloud of which nothing is kept stays as it is.
    """
    kept = kept | ~kept.any(dim=1, keepdim=True)
    count = kept.sum(dim=1, keepdim=True)
    first = (~kept).long().argsort(dim=1, stable=True)
    again = (random.uniform(0, 1, clouds.shape[1]) * count).long().clamp_max(count - 1)
    place = torch.arange(clouds.shape[1]).expand_as(first)
    return take(clouds, first.gather(1, torch.where(place < count, place, again)))


def nearest(clouds: Tensor, center: Tensor, number: int, alive: Tensor) -> Tensor:
    """Return which of the points that are alive are the nearest to one of them, `center` `(B,)`: a mask `(B, P)`."""
    distance = (clouds - take(clouds, center[:, None])).square().sum(dim=2).masked_fill(~alive, torch.inf)
    chosen = distance.topk(min(number, clouds.shape[1]), dim=1, largest=False).indices
    return torch.zeros_like(alive).scatter(1, chosen, value=True) & alive


def one_alive(alive: Tensor, random: Randomness) -> Tensor:
    """Draw one point of every cloud that is alive: `(B,)`."""
    return random.uniform(0, 1, alive.shape[1]).masked_fill(~alive, -1).argmax(dim=1)
