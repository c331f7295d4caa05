"""AugMix (Hendrycks et al., ICLR 2020): several chains of simple operations, mixed with each other and with the image.

    x̃ = (1 - m)·x + m·Σ_i w_i·chain_i(x),    w ~ Dirichlet(1), m ~ Beta(1, 1)

A chain is one to three operations drawn from five that move the picture (rotation, two shears, two shifts) and four
that change its tones (stretching and equalizing the histogram, fewer levels, solarization). None of them is one of the
common corruptions, none is noise or blur. Batched: an operation is applied to all images that drew it at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

Operation = Callable[[Tensor, Tensor], Tensor]
"""Images `(n, 3, H, W)` in 0 … 1 and signed strengths `(n,)` in -1 … 1 to images."""

CHAINS: Final = 3
DEPTH: Final = 3
STRENGTH: Final = 0.3
"""The largest strength drawn, as a share of what an operation can do: the paper's severity 3 of 10."""


def rotate(images: Tensor, strength: Tensor) -> Tensor:
    """Turn by up to 30 degrees."""
    angle = strength * math.pi / 6
    return _moved(images, angle.cos(), -angle.sin(), angle.sin(), angle.cos())


def shear_x(images: Tensor, strength: Tensor) -> Tensor:
    """Shear along the rows by up to 0.3."""
    return _moved(images, b=0.3 * strength)


def shear_y(images: Tensor, strength: Tensor) -> Tensor:
    """Shear along the columns by up to 0.3."""
    return _moved(images, c=0.3 * strength)


def shift_x(images: Tensor, strength: Tensor) -> Tensor:
    """Shift along the rows by up to a third of the width."""
    return _moved(images, right=2 / 3 * strength)


def shift_y(images: Tensor, strength: Tensor) -> Tensor:
    """Shift along the columns by up to a third of the height."""
    return _moved(images, down=2 / 3 * strength)


def stretch(images: Tensor, _: Tensor) -> Tensor:
    """Stretch every channel to 0 … 1 (autocontrast)."""
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    return (images - low) / (high - low).clamp_min(1 / 255)


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Give every channel an even histogram: a pixel becomes the share of pixels that are darker."""
    flat = images.flatten(2).contiguous()
    ranks = torch.searchsorted(flat.sort(dim=2).values, flat).to(images.dtype)
    return (ranks / (flat.shape[2] - 1)).clamp(0, 1).view_as(images)


def posterize(images: Tensor, strength: Tensor) -> Tensor:
    """Keep 4 to 7 bits of a pixel."""
    levels = 2.0 ** (7 - (3.99 * strength.abs()).floor())[:, None, None, None]
    return (images * 255 / 256 * levels).floor() / levels


def solarize(images: Tensor, strength: Tensor) -> Tensor:
    """Invert pixels brighter than a bound; the stronger, the lower the bound."""
    return torch.where(images < 1 - strength.abs()[:, None, None, None], images, 1 - images)


OPERATIONS: Final[tuple[Operation, ...]] = (
    rotate, shear_x, shear_y, shift_x, shift_y, stretch, equalize, posterize, solarize,
)  # fmt: skip


def augmix(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images in 0 … 1 `(B, 3, H, W)`, each mixed of chains of its own."""
    weights = torch.empty(CHAINS, len(images)).exponential_(generator=generator)
    weights /= weights.sum(dim=0)
    mixed = sum(weight[:, None, None, None] * _chain(images, generator) for weight in weights)
    share = torch.rand(len(images), 1, 1, 1, generator=generator)
    return torch.lerp(images, torch.as_tensor(mixed), share)


def _chain(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images after one to three random operations each."""
    depths = torch.randint(1, DEPTH + 1, (len(images),), generator=generator)
    images = images.clone()
    for step in range(DEPTH):
        drawn = torch.randint(0, len(OPERATIONS), (len(images),), generator=generator)
        strengths = STRENGTH * (2 * torch.rand(len(images), generator=generator) - 1)
        for number, operation in enumerate(OPERATIONS):
            here = ((drawn == number) & (step < depths)).nonzero().flatten()
            if len(here):
                images[here] = operation(images[here], strengths[here])
    return images


def _moved(
    images: Tensor,
    a: Tensor | float = 1.0,
    b: Tensor | float = 0.0,
    c: Tensor | float = 0.0,
    d: Tensor | float = 1.0,
    right: Tensor | float = 0.0,
    down: Tensor | float = 0.0,
) -> Tensor:
    """Return images seen through `(x, y) → (a x + b y + right, c x + d y + down)`; what comes in is black."""
    parts = [torch.as_tensor(part, dtype=images.dtype).expand(len(images)) for part in (a, b, right, c, d, down)]
    grid = F.affine_grid(torch.stack(parts, dim=1).view(-1, 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)
