"""Digital: contrast, elastic transform, pixelate, JPEG, saturation."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from owttt.data.corruptions.images import color, filters
from owttt.data.corruptions.randomness import Randomness


def contrast(x: Tensor, amount: float, random: Randomness) -> Tensor:
    """(x - mean)·c + mean, the mean of each channel."""
    del random
    mean = x.mean(dim=(2, 3), keepdim=True)
    return (x - mean) * amount + mean


def saturate(x: Tensor, constants: tuple[float, float], random: Randomness) -> Tensor:
    """S of HSV times a plus b."""
    del random
    factor, offset = constants
    hue, saturation, value = color.to_hsv(x)
    return color.from_hsv(hue, (saturation * factor + offset).clamp(0, 1), value)


def elastic_transform(x: Tensor, constants: tuple[float, float, float], random: Randomness) -> Tensor:
    """Jitter three points (an affine map), then displace every pixel by smooth noise of strength α and scale σ.

    Constants are shares of the image's height.
    """
    height, width = x.shape[2:]
    strength, sigma, jitter = (constant * height for constant in constants)
    rows, columns = torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")
    x = filters.sample(x, *_affine(rows, columns, random.uniform(-jitter, jitter, 3, 2)), mode="reflect")
    noise = random.uniform(-1, 1, 2, height, width)
    if strength == 0:
        return x
    displacement = strength * filters.gaussian_blur(noise, sigma, truncate=3.0, mode="symmetric")
    down, right = displacement.unbind(dim=1)
    return filters.sample(x, rows + down, columns + right, mode="symmetric")


def _affine(rows: Tensor, columns: Tensor, jitter: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each pixel comes from, if three points around the center move by `jitter` `(B, 3, 2)`."""
    height, width = rows.shape
    middle_row, middle_column, reach = height // 2, width // 2, min(height, width) // 3
    corners = torch.tensor([[reach, reach], [reach, -reach], [-reach, -reach]]) + torch.tensor(
        [middle_column, middle_row]
    )
    moved = corners + jitter
    ones = torch.ones(len(jitter), 3, 1)
    back = torch.linalg.solve(torch.cat((moved, ones), dim=2), corners.float().expand(len(jitter), 3, 2))
    grid = torch.stack((columns.flatten(), rows.flatten(), torch.ones(rows.numel())), dim=1)
    origin = grid @ back
    return origin[:, :, 1].view(-1, height, width), origin[:, :, 0].view(-1, height, width)


def pixelate(x: Tensor, share: float, random: Randomness) -> Tensor:
    """Shrink to c of the size by averaging boxes, and enlarge by boxes again, in 8 bits."""
    del random
    sizes = [int(size * share) for size in x.shape[2:]]
    small = _box(_box(x, sizes[0], 2), sizes[1], 3)
    small = (small * 255).round() / 255
    return _box(_box(small, x.shape[2], 2), x.shape[3], 3)


def _box(x: Tensor, size: int, axis: int) -> Tensor:
    """Resize one axis: each new pixel is the mean of the old ones whose center lies in its box."""
    old = x.shape[axis]
    scale = old / size
    centers = (torch.arange(size) + 0.5) * scale
    distance = (torch.arange(old)[None, :] + 0.5 - centers[:, None]) / max(scale, 1)
    weights = ((distance > -0.5) & (distance <= 0.5)).to(x.dtype)
    weights = weights / weights.sum(dim=1, keepdim=True)
    return (x.movedim(axis, -1) @ weights.T).movedim(-1, axis)


def jpeg_compression(x: Tensor, quality: int, random: Randomness) -> Tensor:
    """Write as JPEG of quality c and read again."""
    del random
    pixels = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return torch.from_numpy(np.stack([_jpeg(image, quality) for image in pixels])).permute(0, 3, 1, 2) / 255


def _jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    with io.BytesIO() as buffer:
        Image.fromarray(image).save(buffer, "JPEG", quality=quality)
        return np.asarray(Image.open(buffer))
