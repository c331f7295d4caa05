"""What a camera or a lidar sees of a shape from where it stands.

The published corruptions render the mesh; ours see the points: those are seen that are not far behind the nearest one
of their cell, and of the cells around it, of a coarse image.
"""

from __future__ import annotations

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt.data.corruptions.clouds.points import in_cube, refilled
from owttt.data.corruptions.clouds.shape import turn
from owttt.data.corruptions.randomness import Randomness

CAMERA, LIDAR = 3.0, 5.0
"""How far from the center they stand."""
CROWD: Final = 6
"""Points for each cell of the image."""
THICKNESS: Final = 0.35
"""How far behind the nearest point of its cell and of those around it a point is still seen."""
BEAM: Final = math.pi / 180
"""Angle between the beams of a lidar."""


def occlusion(clouds: Tensor, fifth: int, random: Randomness) -> Tensor:
    """Keep what a camera sees that looks down by 30 to 60 degrees from a fifth of the circle."""
    tilt = random.uniform(2 / 3 * math.pi, 5 / 6 * math.pi, 1)[:, 0]
    position = standpoint(tilt, fifth, CAMERA, random)
    return in_cube(refilled(clouds, visible(clouds, position), random))


def lidar(clouds: Tensor, fifth: int, random: Randomness) -> Tensor:
    """Keep what a lidar sees on its beams, a degree apart; points lie on the beam, whose middle half is seen."""
    tilt = torch.full((len(clouds),), 5 / 8 * math.pi)
    position = standpoint(tilt, fifth, LIDAR, random)
    offset = clouds - position[:, None]
    reach = offset.norm(dim=2)
    height = torch.asin((offset[..., 2] / reach).clamp(-1, 1))
    beam = (height - height.amin(dim=1, keepdim=True)) / BEAM
    inside = beam - beam.floor()
    on_beam = (inside >= 0.25) & (inside < 0.75)
    snapped = height.amin(dim=1, keepdim=True) + (beam.floor() + 0.5) * BEAM
    around = torch.atan2(offset[..., 1], offset[..., 0])
    flat = snapped.cos()
    seen = torch.stack((flat * around.cos(), flat * around.sin(), snapped.sin()), dim=2) * reach[..., None]
    seen = seen + position[:, None]
    return refilled(seen, on_beam & visible(clouds, position), random)


def visible(clouds: Tensor, position: Tensor) -> Tensor:
    """Return which points are seen from a position `(B, 3)`: a mask `(B, P)`."""
    forward = -position / position.norm(dim=1, keepdim=True)
    right = torch.linalg.cross(forward, forward.new_tensor([0.0, 0.0, 1.0]).expand_as(forward))
    right = right / right.norm(dim=1, keepdim=True).clamp_min(1e-12)
    up = torch.linalg.cross(right, forward)
    offset = clouds - position[:, None]
    depth = (offset * forward[:, None]).sum(dim=2)
    across, along = ((offset * axis[:, None]).sum(dim=2) / depth for axis in (right, up))
    extent = torch.stack((across, along)).abs().amax(dim=(0, 2))[:, None].clamp_min(1e-12)
    cells = max(4, int(math.sqrt(clouds.shape[1] / CROWD)))
    column, row = (((part / extent + 1) / 2 * cells).long().clamp(0, cells - 1) for part in (across, along))
    cell = row * cells + column
    nearest = torch.full((len(clouds), cells**2), torch.inf).scatter_reduce(1, cell, depth, "amin")
    around = -F.max_pool2d(-nearest.view(-1, 1, cells, cells), 3, 1, 1).flatten(1)
    seen: Tensor = depth <= around.gather(1, cell) + THICKNESS
    return seen


def standpoint(tilt: Tensor, fifth: int, distance: float, random: Randomness) -> Tensor:
    """Return where the viewer stands `(B, 3)`: on the fifth of the circle, tilted from the vertical axis z."""
    middle = 2 * math.pi * fifth / 5
    around = random.uniform(middle - math.pi / 5, middle + math.pi / 5, 1)[:, 0]
    looking = turn(around, 2) @ turn(tilt, 0)
    return -distance * looking[:, :, 2]
