"""Residual networks for 32-pixel images: depth 6n + 2, three stages, no stem pooling (He et al., CVPR 2016, 4.2)."""

from __future__ import annotations

from typing import final

import torch.nn.functional as F
from torch import Tensor, nn


@final
class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut; a projection where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x + f(x))."""
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.shortcut(x) + self.bn2(self.conv2(y)))


@final
class CifarResNet(nn.Module):
    """ResNet-20, -26, -32, -56, … of a given width; features are the 4·width pooled channels in front of `fc`."""

    def __init__(self, depth: int = 26, num_classes: int = 10, width: int = 16) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise ValueError(f"depth must be 6n + 2 (20, 26, 32, 56, …), got {depth}.")
        self.conv = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        channels = [width, width, 2 * width, 4 * width]
        self.stages = nn.Sequential(
            *(
                BasicBlock(channels[stage] if block == 0 else channels[stage + 1], channels[stage + 1], stride)
                for stage in range(3)
                for block in range(blocks)
                for stride in [2 if stage and block == 0 else 1]
            )
        )
        self.fc = nn.Linear(4 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        y: Tensor = self.stages(F.relu(self.bn(self.conv(x))))
        logits: Tensor = self.fc(y.mean(dim=(2, 3)))
        return logits
