"""The common corruptions (Hendrycks & Dietterich, ICLR 2019) as batched operations, the same for an image everywhere.

    corrupt(images, "fog", severity=5, indices=range(100, 164))

Every image has randomness of its own, from the seed, the corruption, the severity and the image's number: a subset,
another order or another batch size gives the same pixels. `COMMON` are the 15 of the benchmarks, `EXTRA` the 4
held-out ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from owttt.data.corruptions.images import blur, digital, noise, weather
from owttt.data.corruptions.images.constants import CONSTANTS, ConstantSet
from owttt.data.corruptions.images.frost import FrostSource, frost_from_folder, synthetic_frost
from owttt.data.corruptions.randomness import Randomness

Corruption = Callable[..., Tensor]

CORRUPTIONS: Final[dict[str, Corruption]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": weather.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "spatter": weather.spatter,
    "saturate": digital.saturate,
}
COMMON: Final = tuple(CORRUPTIONS)[:15]
EXTRA: Final = tuple(CORRUPTIONS)[15:]
_CHUNK: Final = 2**18
"""Pixels worked on at once: small enough to stay in the cache, large enough to keep the machine busy."""

_ROUNDING: Final = 1e-3
"""Added before values are cut to 8 bits, so that k/255·255 is k."""


def corrupt(
    images: Tensor,
    corruption: str,
    severity: int,
    *,
    indices: Sequence[int] | Tensor,
    seed: int = 0,
    constants: ConstantSet | None = None,
    frost: FrostSource = synthetic_frost,
) -> Tensor:
    """Corrupt images `(B, 3, H, W)`, uint8, and return as many.

    indices     the number of each image in its data set, which its randomness belongs to
    constants   32 (CIFAR-C) or 224 (ImageNet-C); by default the set nearer to the images' size
    frost       where ice comes from, e.g. `frost_from_folder(path)`
    """
    _check(images, corruption, severity, indices)
    chosen = constants or (32 if min(images.shape[2:]) < 128 else 224)
    values = CONSTANTS[corruption][chosen][severity - 1]
    options: dict[str, Any] = {"source": frost} if corruption == "frost" else {}
    size = max(1, _CHUNK // (images.shape[2] * images.shape[3]))
    numbers = [int(index) for index in indices]
    results = []
    for start in range(0, len(images), size):
        random = Randomness(f"{seed}/{corruption}/{severity}", numbers[start : start + size])
        x = images[start : start + size].float() / 255
        x = CORRUPTIONS[corruption](x, values, random, **options)
        results.append((x.clamp(0, 1) * 255 + _ROUNDING).to(torch.uint8))
    return torch.cat(results) if results else images.clone()


def _check(images: Tensor, corruption: str, severity: int, indices: Sequence[int] | Tensor) -> None:
    if corruption not in CORRUPTIONS:
        raise ValueError(f"No corruption {corruption!r}; choose one of {list(CORRUPTIONS)}.")
    if severity not in range(1, 6):
        raise ValueError(f"severity must be 1 to 5, got {severity}.")
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != 3:
        raise ValueError(f"Expected uint8 images (B, 3, H, W), got {images.dtype} {tuple(images.shape)}.")
    if len(indices) != len(images):
        raise ValueError(f"Expected one index for each of {len(images)} images, got {len(indices)}.")


__all__ = [
    "COMMON",
    "CONSTANTS",
    "CORRUPTIONS",
    "EXTRA",
    "ConstantSet",
    "FrostSource",
    "corrupt",
    "frost_from_folder",
    "synthetic_frost",
]
