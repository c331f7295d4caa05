"""What samples are: images or point clouds. Each owns how it is corrupted, framed, varied and drawn."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from owttt.data.modalities.base import Frame, Look, Modality, Variation, as_float
from owttt.data.modalities.clouds import Clouds
from owttt.data.modalities.images import Images

IMAGES: Final = Images()
CLOUDS: Final = Clouds()
MODALITIES: Final[dict[str, Modality]] = {modality.name: modality for modality in (IMAGES, CLOUDS)}


def modality_of(samples: Tensor) -> Modality:
    """Return what a batch of samples is: the one place that asks."""
    return CLOUDS if samples.dim() == 3 else IMAGES


__all__ = [
    "CLOUDS",
    "IMAGES",
    "MODALITIES",
    "Clouds",
    "Frame",
    "Images",
    "Look",
    "Modality",
    "Variation",
    "as_float",
    "modality_of",
]
