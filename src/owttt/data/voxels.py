"""Clouds of shapes that are given as voxels, and of digits that are given as images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owttt.data.cloud_corruptions.points import in_unit_ball
from owttt.data.dataset import Array, Dataset

POINTS: Final = 1024
"""Points of a cloud, unless a frame says otherwise."""


@final
class VoxelClouds(Dataset):
    """Solid shapes `(N, D, H, W)` as clouds of their surface: a point somewhere in each surface voxel drawn.

    A surface voxel is filled and has an empty one, or the end of the grid, at one of its six sides. Empty grids are
    left out. Which points a cloud has depends on its number only.
    """

    def __init__(self, grids: Array, labels: Array, classes: Sequence[str], points: int = POINTS) -> None:
        filled = np.flatnonzero(grids.reshape(len(grids), -1).any(axis=1))
        super().__init__(labels[filled], classes)
        self.grids, self.filled, self.points = grids, filled, points

    def sample(self, index: int) -> Tensor:
        """Return a cloud in the unit ball."""
        voxels = torch.from_numpy(np.argwhere(surface(self.grids[self.filled[index]] > 0)))
        return drawn(voxels.float(), self.points, seed=index)


@final
class DigitClouds(Dataset):
    """Images of digits as clouds: every bright pixel a column of voxels, as 3D-MNIST makes its own (Castro, 2016)."""

    def __init__(self, images: Dataset, points: int = POINTS, *, depth: int = 6, bright: int = 64) -> None:
        super().__init__(images.labels, images.classes, images.names)
        self.images, self.points, self.depth, self.bright = images, points, depth, bright

    def sample(self, index: int) -> Tensor:
        """Return a cloud in the unit ball, the digit upright in the plane of x and z."""
        pixels = self.images.sample(index)[0] > self.bright
        rows, columns = pixels.nonzero(as_tuple=True)
        layers = torch.arange(self.depth).repeat_interleave(len(rows))
        upright = torch.stack(
            (columns.repeat(self.depth), layers, (pixels.shape[0] - 1 - rows).repeat(self.depth)), dim=1
        )
        return drawn(upright.float(), self.points, seed=index)


def surface(solid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the filled voxels of a grid `(D, H, W)` that have an empty side."""
    padded = np.pad(solid, 1)
    inside = np.ones_like(solid)
    for axis in range(3):
        for step in (-1, 1):
            inside &= np.roll(padded, step, axis)[1:-1, 1:-1, 1:-1]
    return solid & ~inside


def drawn(voxels: Tensor, points: int, seed: int) -> Tensor:
    """Draw points in voxels `(N, 3)` of side 1, in none of them twice while there are others, in the unit ball."""
    generator = torch.Generator().manual_seed(seed)
    rounds = -(-points // len(voxels))
    order = torch.cat([torch.randperm(len(voxels), generator=generator) for _ in range(rounds)])[:points]
    cloud = voxels[order] + torch.rand(points, 3, generator=generator)
    return in_unit_ball(cloud[None])[0]
