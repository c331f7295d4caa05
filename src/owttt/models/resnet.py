"""Residual networks (He et al., CVPR 2016): the CIFAR forms of 4.2 and 4.1, and the large stem for ImageNet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, final

import torch.nn.functional as F
from torch import Tensor, nn


@final
class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut; a projection where the shape changes."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x + f(x))."""
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.shortcut(x) + self.bn2(self.conv2(y)))


@final
class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions around a shortcut; the stride is the first one's, as published."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.shortcut = _shortcut(inputs, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x + f(x))."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.shortcut(x) + self.bn3(self.conv3(y)))


@final
class ResNet(nn.Module):
    """Stages of blocks, each stage twice as wide and half as large as the one before; pooled features before `fc`.

    The small stem is one 3×3 convolution, for 32-pixel images; the large one is 7×7 with stride 2 and pooling.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: Sequence[int],
        num_classes: int,
        *,
        width: int = 64,
        stem: Literal["small", "large"] = "small",
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        large = stem == "large"
        self.conv = nn.Conv2d(3, width, *((7, 2, 3) if large else (3, 1, 1)), bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        widths = [width * 2**stage for stage, count in enumerate(blocks) for _ in range(count)]
        inputs = [width, *(block.expansion * each for each in widths[:-1])]
        strides = [1, *(1 if before == after else 2 for before, after in pairwise(widths))]
        self.stages = nn.Sequential(*map(block, inputs, widths, strides))
        self.fc = nn.Linear(block.expansion * widths[-1], num_classes)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        y: Tensor = self.stages(self.pool(F.relu(self.bn(self.conv(x)))))
        logits: Tensor = self.fc(y.mean(dim=(2, 3)))
        return logits


def cifar_resnet(depth: int = 26, num_classes: int = 10, width: int = 16) -> ResNet:
    """Return ResNet-20, -26, -32, -56, …: three stages for 32-pixel images, 4·width features."""
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth must be 6n + 2 (20, 26, 32, 56, …), got {depth}.")
    return ResNet(BasicBlock, [blocks] * 3, num_classes, width=width)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
