"""Images `(B, 3, H, W)`: uint8 as they are stored, float in 0 … 1 as a model gets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt.data.corruptions.images import COMMON, CORRUPTIONS, corrupt
from owttt.data.modalities.augmentation import recolored, shifted, shrunk
from owttt.data.modalities.augmix import augmix
from owttt.data.modalities.base import Frame, Look, Modality, Variation, as_float


@final
class Images(Modality):
    """RGB images of any size."""

    name = "images"
    shape = "RGB images (B, 3, H, W) in uint8"
    common = COMMON
    corruptions = tuple(CORRUPTIONS)
    corrupted_first = False

    def corruptible(self, samples: Tensor) -> bool:
        """Whether these are RGB images of whole pixels."""
        return samples.dtype == torch.uint8 and samples.dim() == 4 and samples.shape[1] == 3

    def _corrupt(self, samples: Tensor, look: Look, indices: Sequence[int], upright: int) -> Tensor:
        return corrupt(samples, look.name, look.severity, indices=indices, frost=look.frost)

    def framed(self, samples: Tensor, frame: Frame) -> Tensor:
        """Return RGB squares."""
        if samples.shape[1] == 1:
            samples = samples.expand(-1, 3, -1, -1)
        target = frame.resize or frame.size
        height, width = samples.shape[2:]
        if min(height, width) != target and (height, width) != (frame.size, frame.size):
            shape = [max(target, round(side * target / min(height, width))) for side in (height, width)]
            samples = F.interpolate(samples.contiguous(), shape, mode="bilinear", antialias=True, align_corners=False)
        top, left = ((side - frame.size) // 2 for side in samples.shape[2:])
        return samples[:, :, top : top + frame.size, left : left + frame.size].contiguous()

    def varied(self, samples: Tensor, variation: Variation, generator: torch.Generator) -> Tensor:
        """Return images shifted and flipped, perhaps mixed with chains of operations, perhaps in other colors."""
        images = shifted(samples, variation.pad, variation.flip, generator)
        if variation.augmix:
            images = augmix(as_float(images), generator)
        return recolored(images, variation.color, generator) if variation.color else images

    def resized(self, samples: Tensor, side: int) -> Tensor:
        """Return images of another side."""
        return shrunk(samples, side)

    def picture(self, sample: Tensor, upright: int = 2, side: int | None = None) -> Tensor:
        """Return an image as whole pixels, enlarged without smoothing if a `side` is given."""
        pixels = sample if sample.dtype == torch.uint8 else sample.mul(255).round().clamp(0, 255).byte()
        return pixels if side is None else F.interpolate(pixels[None], (side, side), mode="nearest")[0]
