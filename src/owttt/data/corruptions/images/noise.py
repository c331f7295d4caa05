"""Noise: every value gets its own."""

from __future__ import annotations

import torch
from torch import Tensor

from owttt.data.corruptions.randomness import Randomness


def gaussian_noise(x: Tensor, strength: float, random: Randomness) -> Tensor:
    """Add N(0, c²)."""
    return x + strength * random.normal(*x.shape[1:])


def shot_noise(x: Tensor, photons: float, random: Randomness) -> Tensor:
    """Poisson(x·c)/c."""
    return random.poisson(x * photons) / photons


def impulse_noise(x: Tensor, amount: float, random: Randomness) -> Tensor:
    """Salt or pepper, on a share c of the values."""
    hit = random.uniform(0, 1, *x.shape[1:]) < amount
    salt = random.uniform(0, 1, *x.shape[1:]) < 0.5
    return torch.where(hit, salt.to(x.dtype), x)


def speckle_noise(x: Tensor, strength: float, random: Randomness) -> Tensor:
    """Add x·N(0, c²)."""
    return x + x * strength * random.normal(*x.shape[1:])
