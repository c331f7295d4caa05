"""What images and clouds each know how to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

import torch
from torch import Tensor

from owttt.data.corruptions.images.frost import FrostSource, synthetic_frost


@final
@dataclass(frozen=True)
class Frame:
    """What a network wants its samples brought to.

    Images of any size and channels become RGB squares: shorter side to `resize`, the middle `size` of it. Clouds get
    `points` points: some of those they have, always the same, or all of them again and again. What is already right
    passes through untouched.
    """

    size: int = 32
    resize: int | None = None
    points: int | None = None

    def __call__(self, samples: Tensor) -> Tensor:
        """Return `(B, 3, size, size)`, or clouds `(B, points, 3)`, of the type that came."""
        from owttt.data.modalities import modality_of  # noqa: PLC0415  (images and clouds are made of this file)

        return modality_of(samples).framed(samples, self)


@final
@dataclass(frozen=True)
class Variation:
    """How training varies samples; see `owttt.training.Recipe` for what each part is good for."""

    pad: int = 4
    flip: bool = True
    augmix: bool = False
    color: float = 0.0


@final
@dataclass(frozen=True)
class Look:
    """A corruption that samples are under: its name, its severity, and where ice comes from."""

    name: str
    severity: int
    frost: FrostSource = synthetic_frost


class Modality(ABC):
    """How samples of one kind are corrupted, framed, varied and drawn. Samples come in batches `(B, …)`."""

    name: ClassVar[str]
    """What they are called, in the plural."""
    shape: ClassVar[str]
    """What a batch of them looks like, in words."""
    common: ClassVar[tuple[str, ...]]
    """The corruptions of the benchmarks."""
    corruptions: ClassVar[tuple[str, ...]]
    """All of them."""
    corrupted_first: ClassVar[bool]
    """Whether samples are corrupted as they are stored, and framed after."""

    def corrupt(self, samples: Tensor, look: Look, indices: Sequence[int], upright: int) -> Tensor:
        """Return corrupted samples; `indices` are their numbers in their data set, `upright` is the vertical axis."""
        if not self.corruptible(samples):
            raise ValueError(
                f"{look.name} cannot be done to {samples.dtype} {tuple(samples.shape[1:])}: {self.name} must be "
                f"{self.shape}. A frame makes gray images RGB."
            )
        return self._corrupt(samples, look, indices, upright)

    @abstractmethod
    def corruptible(self, samples: Tensor) -> bool:
        """Whether corruptions can be done to samples of this type and shape."""

    @abstractmethod
    def _corrupt(self, samples: Tensor, look: Look, indices: Sequence[int], upright: int) -> Tensor: ...

    @abstractmethod
    def framed(self, samples: Tensor, frame: Frame) -> Tensor:
        """Return samples in a frame."""

    @abstractmethod
    def varied(self, samples: Tensor, variation: Variation, generator: torch.Generator) -> Tensor:
        """Return samples as training shows them."""

    @abstractmethod
    def resized(self, samples: Tensor, side: int) -> Tensor:
        """Return samples of another side, where they have one."""

    @abstractmethod
    def picture(self, sample: Tensor, upright: int = 2, side: int | None = None) -> Tensor:
        """Return one sample, as a model gets it, as an RGB image `(3, H, W)` in uint8."""


def as_float(samples: Tensor) -> Tensor:
    """Return images of whole pixels in 0 … 1, and everything else as float32."""
    return samples.float() / 255 if samples.dtype == torch.uint8 else samples.float()


CLOUD_PICTURE: Final = 96
"""Side of a cloud's picture, in pixels."""
