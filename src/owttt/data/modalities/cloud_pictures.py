"""Clouds as pictures: seen from the side and a little above, near points dark."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from owttt.data.corruptions.clouds.points import in_cube

AZIMUTH, ELEVATION = 40 * math.pi / 180, 25 * math.pi / 180


def draw_cloud(cloud: Tensor, size: int) -> Tensor:
    """Return a cloud `(P, 3)` as an RGB image `(3, size, size)` in uint8, filling it as the cube does; z is upright."""
    cloud = in_cube(cloud[None].float())[0]
    across = torch.tensor([-math.sin(AZIMUTH), math.cos(AZIMUTH), 0.0])
    towards = torch.tensor(
        [math.cos(AZIMUTH) * math.cos(ELEVATION), math.sin(AZIMUTH) * math.cos(ELEVATION), math.sin(ELEVATION)]
    )
    upright = torch.linalg.cross(towards, across)
    column, row, near = (cloud @ torch.stack((across, -upright, towards), dim=1)).unbind(dim=1)
    order = near.argsort()
    x, y = (((part[order] * 0.36 + 0.5) * (size - 1)).round().long().clamp(0, size - 2) for part in (column, row))
    shade = (1 - (near[order] + 1) / 2).clamp(0, 1)[:, None]
    colors = (torch.tensor([28.0, 62, 110]) * (1 - shade) + torch.tensor([178.0, 205, 232]) * shade).to(torch.uint8)
    image = torch.full((size, size, 3), 255, dtype=torch.uint8)
    for step in ((0, 0), (0, 1), (1, 0), (1, 1)):
        image[y + step[0], x + step[1]] = colors
    return image.permute(2, 0, 1)
