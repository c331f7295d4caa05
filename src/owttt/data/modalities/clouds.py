"""Point clouds `(B, P, 3)` in float, of any scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from owttt.data.corruptions.clouds import CLOUD_CORRUPTIONS, corrupt_clouds
from owttt.data.corruptions.clouds.points import standing
from owttt.data.modalities.augmentation import stretched
from owttt.data.modalities.base import CLOUD_PICTURE, Frame, Look, Modality, Variation
from owttt.data.modalities.cloud_pictures import draw_cloud


@final
class Clouds(Modality):
    """Clouds of any number of points."""

    name = "clouds"
    shape = "clouds (B, P, 3) in float"
    common = CLOUD_CORRUPTIONS
    corruptions = CLOUD_CORRUPTIONS
    corrupted_first = True

    def corruptible(self, samples: Tensor) -> bool:
        """Whether these are clouds of points in space."""
        return samples.is_floating_point() and samples.dim() == 3 and samples.shape[2] == 3

    def _corrupt(self, samples: Tensor, look: Look, indices: Sequence[int], upright: int) -> Tensor:
        return corrupt_clouds(samples, look.name, look.severity, indices=indices, upright=upright)

    def framed(self, samples: Tensor, frame: Frame) -> Tensor:
        """Return clouds of as many points as the frame wants."""
        there = samples.shape[1]
        if frame.points is None or frame.points == there:
            return samples
        if frame.points > there:
            return samples[:, torch.arange(frame.points) % there]
        return samples[:, torch.randperm(there, generator=torch.Generator().manual_seed(0))[: frame.points]]

    def varied(self, samples: Tensor, variation: Variation, generator: torch.Generator) -> Tensor:
        """Return clouds stretched along each axis."""
        return stretched(samples, generator)

    def resized(self, samples: Tensor, side: int) -> Tensor:
        """Return clouds as they are."""
        return samples

    def picture(self, sample: Tensor, upright: int = 2, side: int | None = None) -> Tensor:
        """Return a cloud seen from the side and a little above."""
        return draw_cloud(standing(sample, upright), side or CLOUD_PICTURE)
