"""Ice to lay over an image: synthetic sheets, or crops of photographs from a folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from owttt.data.corruptions.images import filters
from owttt.data.corruptions.randomness import Randomness

FrostSource = Callable[[int, int, Randomness], Tensor]
"""Give ice `(B, 3, H, W)` in [0, 1] for a height, a width and a batch's randomness."""

_TINT = torch.tensor([-0.07, 0.01, 0.06])[:, None, None]


def synthetic_frost(height: int, width: int, random: Randomness) -> Tensor:
    """Bluish ice: a level for each image, drifts, ridges like crystals, and grain.

    Its level, spread and correlation follow what the published 32-pixel images hold; larger images get the same sheet
    at a larger scale, as a photograph would give.
    """
    scale = max(1.0, min(height, width) / 45)
    level = 0.63 + 0.15 * random.normal(1, 1, 1)
    drifts = _unit(filters.gaussian_blur(random.normal(1, height, width), 5 * scale))
    ridges = _unit(-filters.gaussian_blur(random.normal(1, height, width), 0.6 * scale).abs())
    grain = _unit(filters.gaussian_blur(random.normal(1, height, width), 0.3 * scale))
    ice = level + 0.035 * drifts + 0.06 * ridges + 0.055 * grain
    return (ice + _TINT).clamp(0.1, 0.95)


def _unit(field: Tensor) -> Tensor:
    centered = field - field.mean(dim=(2, 3), keepdim=True)
    return centered / centered.std(dim=(2, 3), keepdim=True).clamp_min(1e-6)


def frost_from_folder(folder: str | Path) -> FrostSource:
    """Take random crops of the photographs in a folder, shrunk to a fifth for images below 64 pixels."""
    files = sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in (".png", ".jpg", ".jpeg"))
    if not files:
        raise ValueError(f"{folder}: no PNG or JPEG photographs of frost here.")

    @cache
    def photograph(index: int, small: bool) -> Tensor:
        picture = Image.open(files[index]).convert("RGB")
        if small:
            picture = picture.resize((picture.width // 5, picture.height // 5), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255

    def crops(height: int, width: int, random: Randomness) -> Tensor:
        which = random.integers(0, len(files)).tolist()
        corner = random.uniform(0, 1, 2)
        result = []
        for index, (down, right) in zip(which, corner.tolist(), strict=True):
            photo = photograph(index, max(height, width) < 64)
            spare = photo.shape[1] - height, photo.shape[2] - width
            if min(spare) < 0:
                raise ValueError(f"{files[index]}: smaller than the images, {height}×{width}.")
            top, left = int(down * (spare[0] + 1)), int(right * (spare[1] + 1))
            result.append(photo[:, top : top + height, left : left + width])
        return torch.stack(result)

    return crops
