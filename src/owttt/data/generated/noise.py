"""Pictures of nothing: noise as an unknown class, drawn from the number of the picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import torch
from torch import Tensor

from owttt.data.catalog import catalog
from owttt.data.corruptions.clouds.points import in_unit_ball
from owttt.data.dataset import Dataset
from owttt.data.modalities import Frame

COUNT: Final = 10_000


@final
class Noise(Dataset):
    """ε ~ N(0, 1) in CIFAR-10's normalized space, so it leaves 0 … 1; or, if `uniform`, U(0, 1) pixels.

    For a network that takes clouds they are points, normal or uniform in a cube, brought into the unit ball. The first
    is the authors'. Theirs is drawn anew at every access; ours depends on the seed and the picture's number.
    """

    def __init__(self, count: int = COUNT, *, uniform: bool, size: int = 32, seed: int = 0) -> None:
        super().__init__([0] * count, ["noise"])
        self.uniform, self.size, self.seed = uniform, size, seed
        self.space = catalog()["cifar10"]

    def sample(self, index: int) -> Tensor:
        """Return one picture of the default size."""
        return self.batch([index])[0]

    def batch(self, indices: Sequence[int] | Tensor, frame: Frame | None = None) -> Tensor:
        """Return pictures drawn in the frame's size, not resized: resized noise is another noise. Or clouds of it."""
        if frame is not None and frame.points is not None:
            return in_unit_ball(torch.stack([self._cloud(int(index), frame.points) for index in indices]))
        size = frame.size if frame else self.size
        return torch.stack([self._draw(int(index), size) for index in indices])

    def _cloud(self, index: int, points: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        draw = torch.rand if self.uniform else torch.randn
        return draw(points, 3, generator=generator)

    def _draw(self, index: int, size: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        if self.uniform:
            return torch.rand(3, size, size, generator=generator)
        pixels = torch.randn(3, size, size, generator=generator)
        return pixels * torch.tensor(self.space.std).view(3, 1, 1) + torch.tensor(self.space.mean).view(3, 1, 1)
