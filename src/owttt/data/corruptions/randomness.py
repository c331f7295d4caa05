"""Random numbers that belong to an image, not to a batch: a subset or another batch size gives the same pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import final

import torch
from torch import Tensor


@final
class Randomness:
    """One generator for every image of a batch, seeded by a key and the image's own number."""

    def __init__(self, key: str, images: Iterable[int]) -> None:
        self._generators = [torch.Generator().manual_seed(_seed(f"{key}/{image}")) for image in images]

    def __len__(self) -> int:
        return len(self._generators)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers `(B, *shape)`."""
        return self._each(lambda generator: torch.randn(shape, generator=generator))

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Uniform numbers `(B, *shape)`."""
        return self._each(lambda generator: torch.rand(shape, generator=generator)) * (high - low) + low

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers `(B, *shape)` from low up to high, high left out."""
        return self._each(lambda generator: torch.randint(low, high, shape, generator=generator))

    def poisson(self, rates: Tensor) -> Tensor:
        """Poisson numbers with rates `(B, …)`."""
        pairs = zip(rates, self._generators, strict=True)
        return torch.stack([torch.poisson(rate, generator=generator) for rate, generator in pairs])

    def _each(self, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        return torch.stack([draw(generator) for generator in self._generators])


def _seed(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") >> 1
