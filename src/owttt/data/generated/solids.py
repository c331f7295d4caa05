"""Clouds of solids that are made up: to look at, to try things with, and as unknown classes that need no file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owttt.data.dataset import Dataset
from owttt.data.readers.voxels import POINTS, drawn, surface

COUNT, SIDE, LEAST = 10_000, 30, 0.5
"""How many there are, voxels along a side, and the least a solid is squeezed to along an axis."""

Coordinates = NDArray[np.float64]
SOLIDS: Final[dict[str, Callable[[Coordinates, Coordinates, Coordinates], NDArray[np.bool_]]]] = {
    "ball": lambda x, y, z: x**2 + y**2 + z**2 <= 1,
    "box": lambda x, y, z: np.maximum(np.maximum(abs(x), abs(y)), abs(z)) <= 1,
    "cylinder": lambda x, y, z: (x**2 + y**2 <= 1) & (abs(z) <= 1),
    "cone": lambda x, y, z: (2 * np.hypot(x, y) <= 1 - z) & (z >= -1),
    "torus": lambda x, y, z: (np.hypot(x, y) - 0.7) ** 2 + z**2 <= 0.3**2,
    "table": lambda x, y, z: _top(x, y, z, 0.75, 1) | (_legs(x, y) & (abs(z) <= 1)),
    "chair": lambda x, y, z: (
        _top(x, y, z, -0.2, 0.1) | (_legs(x, y) & (abs(z + 0.6) <= 0.4)) | (_top(x, y, z, 0, 1) & (x <= -0.75))
    ),
}
"""Class → whether a point is inside, of coordinates from -1 to 1; z is upright."""


@final
class Solids(Dataset):
    """Solids in turn, each squeezed along its axes by U(½, 1) drawn from its number."""

    def __init__(self, count: int = COUNT, points: int = POINTS) -> None:
        super().__init__([number % len(SOLIDS) for number in range(count)], list(SOLIDS))
        self.points = points

    def sample(self, index: int) -> Tensor:
        """Return a cloud in the unit ball."""
        squeeze = LEAST + (1 - LEAST) * torch.rand(3, generator=torch.Generator().manual_seed(index)).numpy()
        ticks = (np.arange(SIDE) + 0.5) / (SIDE / 2) - 1
        x, y, z = (
            part / factor for part, factor in zip(np.meshgrid(*[ticks] * 3, indexing="ij"), squeeze, strict=True)
        )
        inside = SOLIDS[self.classes[int(self.labels[index])]](x, y, z)
        return drawn(np.argwhere(surface(inside)), self.points, seed=index)


def _top(x: Coordinates, y: Coordinates, z: Coordinates, low: float, high: float) -> NDArray[np.bool_]:
    return (abs(x) <= 1) & (abs(y) <= 1) & (z >= low) & (z <= high)


def _legs(x: Coordinates, y: Coordinates) -> NDArray[np.bool_]:
    return (abs(abs(x) - 0.85) <= 0.15) & (abs(abs(y) - 0.85) <= 0.15)
