"""A residual network made for few operations: ResNet-9's shape (Page, "How to train your ResNet", 2018).

Three stages, each a convolution, max pooling, and a residual pair of convolutions at half the side. Every convolution
costs the same, and most of them work on small maps with many channels, which processors like best.
"""

from __future__ import annotations

from typing import final

import torch.nn.functional as F
from torch import Tensor, nn


@final
class _Convolution(nn.Module):
    """A 3×3 convolution, perhaps pooling, BatchNorm and ReLU."""

    def __init__(self, inputs: int, outputs: int, *, pool: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.pool(self.conv(x))))


@final
class _Stage(nn.Module):
    """A pooled convolution and a residual pair."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.enter = _Convolution(inputs, outputs, pool=True)
        self.pair = nn.Sequential(_Convolution(outputs, outputs), _Convolution(outputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.enter(x)
        pair: Tensor = self.pair(y)
        return y + pair


@final
class PooledResNet(nn.Module):
    """Stem, three stages of `width`, 2 and 4 times `width`, mean pooling, `fc`; eleven layers with weights."""

    def __init__(self, num_classes: int, width: int = 64) -> None:
        super().__init__()
        widths = (width // 2, width, 2 * width, 4 * width)
        self.stem = _Convolution(3, widths[0])
        self.stages = nn.Sequential(*map(_Stage, widths[:-1], widths[1:]))
        self.fc = nn.Linear(widths[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.fc(self.stages(self.stem(x)).mean(dim=(2, 3)))
        return logits
