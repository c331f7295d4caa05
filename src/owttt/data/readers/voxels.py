"""Clouds of shapes that are given as voxels, and of digits that are given as images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owttt.data.corruptions.clouds.points import evenly, in_unit_ball
from owttt.data.dataset import Array, Dataset

POINTS: Final = 1024
"""Points of a cloud, unless a frame says otherwise."""


@final
class VoxelClouds(Dataset):
    """Solid shapes `(N, D, D, D)` as clouds of their surface: a point somewhere in each surface voxel drawn.

    A surface voxel is filled and has an empty one, or the end of the grid, at one of its six sides. Empty grids are
    left out. Which points a cloud has depends on its number only.
    """

    def __init__(
        self,
        grids: Array,
        labels: Array,
        classes: Sequence[str],
        names: Sequence[str] | None = None,
        points: int = POINTS,
    ) -> None:
        if len(grids) != len(labels):
            raise ValueError(f"{len(grids)} samples but {len(labels)} labels.")
        filled = np.flatnonzero(grids.reshape(len(grids), -1).any(axis=1))
        super().__init__(labels[filled], classes, names)
        self.grids, self.filled, self.points = grids, filled, points

    def sample(self, index: int) -> Tensor:
        """Return a cloud in the unit ball."""
        return drawn(np.argwhere(surface(self.grids[self.filled[index]] > 0)), self.points, seed=index)


@final
class DigitClouds(Dataset):
    """Images of digits as clouds: every bright pixel is a column, and points lie on the surface of the columns.

    That is how 3D-MNIST (Castro, 2016) looks, whose points have normals; how thick and how bright is our choice.
    """

    def __init__(self, images: Dataset, points: int = POINTS, *, depth: int = 6, bright: int = 64) -> None:
        super().__init__(images.labels, images.classes, images.names)
        self.images, self.points, self.depth, self.bright = images, points, depth, bright

    def sample(self, index: int) -> Tensor:
        """Return a cloud in the unit ball, the digit upright in the plane of x and z."""
        pixels = (self.images.sample(index)[0] > self.bright).numpy()
        standing = pixels[::-1].T
        columns = np.broadcast_to(standing[:, None], (standing.shape[0], self.depth, standing.shape[1]))
        return drawn(np.argwhere(surface(columns)), self.points, seed=index)


def surface(solid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the filled voxels of a grid `(D, H, W)` that have an empty side."""
    padded = np.pad(solid, 1)
    inside = np.ones_like(solid)
    for axis in range(3):
        for step in (-1, 1):
            inside &= np.roll(padded, step, axis)[1:-1, 1:-1, 1:-1]
    return solid & ~inside


def drawn(voxels: NDArray[np.int64], points: int, seed: int) -> Tensor:
    """Draw points in voxels `(N, 3)` of side 1, in none of them twice while there are others, in the unit ball."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.from_numpy(voxels)[evenly(len(voxels), points, generator)]
    cloud = corners + torch.rand(points, 3, generator=generator)
    return in_unit_ball(cloud[None])[0]
