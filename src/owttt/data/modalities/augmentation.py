"""What training makes of samples before the network sees them; everything random comes from the generator."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt.data.modalities.base import as_float


def shifted(images: Tensor, pad: int, flip: bool, generator: torch.Generator) -> Tensor:
    """Return images shifted by up to `pad` pixels and perhaps flipped, each in its own way; the border is mirrored."""
    count, _, height, width = images.shape
    pad = min(pad, height - 1, width - 1)
    padded = F.pad(images.float(), (pad,) * 4, mode="reflect").to(images.dtype)
    top, left = (torch.randint(0, 2 * pad + 1, (count,), generator=generator) for _ in range(2))
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    if flip:
        flipped = torch.rand(count, generator=generator) < 0.5
        columns = torch.where(flipped[:, None], columns.flip(1), columns)
    samples = torch.arange(count)[:, None, None]
    return padded.permute(0, 2, 3, 1)[samples, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def recolored(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Return images in 0 … 1 with brightness, contrast and saturation of their own, some of them grey.

    The factors are uniform in 1 ± 0.5, ± 0.7 and ± 1 times the strength, as in contrastive learning (SimCLR, Chen et
    al., 2020); a share of 0.15 times the strength becomes grey.
    """
    x = as_float(images)

    def factor(spread: float) -> Tensor:
        return 1 + strength * spread * (2 * torch.rand(len(x), 1, 1, 1, generator=generator) - 1)

    x = x * factor(0.5)
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    x = mean + (x - mean) * factor(0.7)
    grey = x.mean(dim=1, keepdim=True)
    colorless = torch.rand(len(x), 1, 1, 1, generator=generator) < 0.15 * strength
    x = grey + (x - grey) * torch.where(colorless, 0.0, factor(1.0))
    return x.clamp(0, 1)


def stretched(clouds: Tensor, generator: torch.Generator) -> Tensor:
    """Return clouds stretched along each axis by U(2/3, 3/2), as DGCNN's are; its shifts a model would undo."""
    low, high = 2 / 3, 3 / 2
    return clouds * (low + (high - low) * torch.rand(len(clouds), 1, 3, generator=generator))


def shrunk(images: Tensor, side: int) -> Tensor:
    """Return images of another side."""
    if side == images.shape[-1]:
        return images
    return F.interpolate(images, (side, side), mode="bilinear", antialias=True, align_corners=False)
