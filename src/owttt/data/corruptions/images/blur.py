"""Blur: out of focus, through glass, in motion, zooming, Gaussian."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from owttt.data.corruptions.images import filters
from owttt.data.corruptions.randomness import Randomness


def defocus_blur(x: Tensor, constants: tuple[float, float], random: Randomness) -> Tensor:
    """Convolve with a disk (radius, alias blur): a hard disk, normalized, then smoothed by a small Gaussian."""
    del random
    radius, alias = constants
    reach = 8 if radius <= 8 else int(radius)
    offsets = torch.arange(-reach, reach + 1.0)
    disk = (offsets[:, None] ** 2 + offsets[None, :] ** 2 <= radius**2).float()
    smooth = filters.gaussian_kernel(alias, 1 if radius <= 8 else 2)
    kernel = filters.convolve((disk / disk.sum())[None, None], torch.outer(smooth, smooth))[0, 0]
    return filters.convolve(x, _trimmed(kernel))


def _trimmed(kernel: Tensor) -> Tensor:
    """Cut the empty rim of a kernel, which would only cost time."""
    reach = int((kernel > 0).any(dim=0).nonzero().max()) - len(kernel) // 2
    middle = len(kernel) // 2
    return kernel[middle - reach : middle + reach + 1, middle - reach : middle + reach + 1]


def glass_blur(x: Tensor, constants: tuple[float, int, int], random: Randomness) -> Tensor:
    """Blur by σ; from the bottom right, let each pixel take the value of one up to d away, n times; blur again.

    The published images hold such copies, not swaps: the original exchanges two views of one array.
    """
    sigma, distance, rounds = constants
    blurred = (filters.gaussian_blur(x, sigma) * 255).floor() / 255
    pixels = blurred.permute(2, 3, 0, 1).contiguous().numpy()
    height, width = pixels.shape[:2]
    images = np.arange(len(x))
    rows, columns = range(height - distance, distance, -1), range(width - distance, distance, -1)
    offsets = random.integers(-distance, distance, rounds, len(rows), len(columns), 2).numpy()
    for turn in range(rounds):
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                there = row + offsets[:, turn, i, j, 0], column + offsets[:, turn, i, j, 1], images
                pixels[row, column] = pixels[there]
    return filters.gaussian_blur(torch.from_numpy(pixels).permute(2, 3, 0, 1).contiguous(), sigma)


def motion_blur(x: Tensor, constants: tuple[int, float], random: Randomness) -> Tensor:
    """Smear along a line (radius, σ) at an angle within 45° of the horizontal."""
    radius, sigma = constants
    return filters.motion_blur(x, radius, sigma, random.uniform(-45, 45))


def zoom_blur(x: Tensor, constants: tuple[float, float], random: Randomness) -> Tensor:
    """Average the image and its zooms from 1 to c.

    The steps are numpy's, whose rounding takes some severities one step further, as in the published images.
    """
    del random
    last, step = constants
    zooms = np.arange(1, round(last + step, 2), step).tolist()
    return (x + torch.stack([filters.centre_zoom(x, zoom) for zoom in zooms]).sum(dim=0)) / (len(zooms) + 1)


def gaussian_blur(x: Tensor, sigma: float, random: Randomness) -> Tensor:
    """Blur by σ."""
    del random
    return filters.gaussian_blur(x, sigma)
