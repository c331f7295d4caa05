"""Filters on batches of images `(B, C, H, W)` that the corruptions are made of."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def gaussian_kernel(sigma: float, radius: int) -> Tensor:
    """Return the normalized weights of a Gaussian at -radius … radius."""
    offsets = torch.arange(-radius, radius + 1.0)
    weights = torch.exp(-(offsets**2) / (2 * sigma**2)) if sigma > 0 else (offsets == 0).float()
    return weights / weights.sum()


def gaussian_blur(x: Tensor, sigma: float, truncate: float = 4.0, mode: str = "replicate") -> Tensor:
    """Blur with a Gaussian cut off at `truncate` standard deviations."""
    kernel = gaussian_kernel(sigma, int(truncate * sigma + 0.5)).to(x)
    return convolve(convolve(x, kernel[None, :], mode), kernel[:, None], mode)


def convolve(x: Tensor, kernel: Tensor, mode: str = "reflect") -> Tensor:
    """Correlate every channel with one kernel `(h, w)` of odd sides, the border continued by `mode`."""
    height, width = kernel.shape
    padded = pad(x, width // 2, height // 2, mode)
    channels = x.shape[1]
    weight = kernel.to(x)[None, None].expand(channels, 1, height, width)
    return F.conv2d(padded, weight, groups=channels)


def pad(x: Tensor, horizontal: int, vertical: int, mode: str) -> Tensor:
    """Continue images beyond their border: "replicate", "reflect" (abc|ba) or "symmetric" (abc|cba), however far."""
    rows = _continued(x.shape[-2], vertical, mode)
    columns = _continued(x.shape[-1], horizontal, mode)
    return x[..., rows, :][..., columns]


def _continued(size: int, more: int, mode: str) -> Tensor:
    return border_index(torch.arange(-more, size + more), size, mode)


def border_index(index: Tensor, size: int, mode: str) -> Tensor:
    """Map positions outside 0 … size-1 to the pixel that stands there in a continued image."""
    if mode == "replicate":
        return index.clamp(0, size - 1)
    period = max(2 * size - (2 if mode == "reflect" else 0), 1)
    index = index.remainder(period)
    return torch.where(index < size, index, period - index - (0 if mode == "reflect" else 1))


def motion_blur(x: Tensor, radius: int, sigma: float, angles: Tensor) -> Tensor:
    """Smear each image along its own direction (degrees) with a one-sided Gaussian of `2·radius + 1` steps."""
    steps = torch.arange(2 * radius + 1.0)
    weights = torch.exp(-(steps**2) / (2 * sigma**2))
    weights = weights / weights.sum()
    radians = torch.deg2rad(angles)[:, None]
    down = torch.ceil(steps * radians.sin() - 0.5).long()
    right = torch.ceil(steps * radians.cos() - 0.5).long()
    result = torch.zeros_like(x)
    for step, weight in enumerate(weights.tolist()):
        result += weight * shifted(x, down[:, step], right[:, step])
    return result


def shifted(x: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Look at each image from a whole-pixel offset of its own, the border repeated."""
    batch, channels, height, width = x.shape
    rows = (torch.arange(height) + down[:, None]).clamp(0, height - 1)
    columns = (torch.arange(width) + right[:, None]).clamp(0, width - 1)
    index = (rows[:, :, None] * width + columns[:, None, :]).view(batch, 1, -1).expand(-1, channels, -1)
    return x.flatten(2).gather(2, index).view_as(x)


def centre_zoom(x: Tensor, factor: float) -> Tensor:
    """Zoom into the center by a factor, bilinearly, corners on corners."""
    if factor == 1:
        return x
    crops = [math.ceil(size / factor) for size in x.shape[-2:]]
    tops = [(size - crop) // 2 for size, crop in zip(x.shape[-2:], crops, strict=True)]
    inner = x[..., tops[0] : tops[0] + crops[0], tops[1] : tops[1] + crops[1]]
    zoomed = F.interpolate(inner, size=[round(c * factor) for c in crops], mode="bilinear", align_corners=True)
    trims = [(big - size) // 2 for big, size in zip(zoomed.shape[-2:], x.shape[-2:], strict=True)]
    return zoomed[..., trims[0] : trims[0] + x.shape[-2], trims[1] : trims[1] + x.shape[-1]]


def sample(x: Tensor, rows: Tensor, columns: Tensor, mode: str) -> Tensor:
    """Read images at real positions `(B, H, W)`, bilinearly, the border continued by `mode`."""
    batch, channels, height, width = x.shape
    top, left = rows.floor(), columns.floor()
    fraction_down, fraction_right = (rows - top)[:, None], (columns - left)[:, None]
    flat = x.flatten(2)

    def at(down: int, right: int) -> Tensor:
        row = border_index((top + down).long(), height, mode)
        column = border_index((left + right).long(), width, mode)
        return flat.gather(2, (row * width + column).view(batch, 1, -1).expand(-1, channels, -1)).view_as(x)

    upper = at(0, 0) * (1 - fraction_right) + at(0, 1) * fraction_right
    lower = at(1, 0) * (1 - fraction_right) + at(1, 1) * fraction_right
    return upper * (1 - fraction_down) + lower * fraction_down


def plasma(size: int, decay: float, noise: list[Tensor]) -> Tensor:
    """Return plasma fractals `(B, size, size)` in [0, 1] by diamonds and squares; size is a power of two.

    `noise` holds, for each of the log2(size) levels, uniform numbers in [-1, 1] of shape `(B, 3, n, n)`: for the
    centers of the squares and for both kinds of diamonds.
    """
    field = torch.zeros(len(noise[0]), size, size)
    step, wobble = size, 100.0
    for level in noise:
        half = step // 2
        strength = wobble**2
        corners = field[:, ::step, ::step]
        across = corners + corners.roll(-1, 1)
        centers = (across + across.roll(-1, 2)) / 4 + strength * level[:, 0]
        field[:, half::step, half::step] = centers
        field[:, ::step, half::step] = (
            centers + centers.roll(1, 1) + corners + corners.roll(-1, 2)
        ) / 4 + strength * level[:, 1]
        field[:, half::step, ::step] = (
            centers + centers.roll(1, 2) + corners + corners.roll(-1, 1)
        ) / 4 + strength * level[:, 2]
        step, wobble = half, wobble / decay
    field = field - field.amin(dim=(1, 2), keepdim=True)
    return field / field.amax(dim=(1, 2), keepdim=True)
