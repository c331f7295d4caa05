"""A small vision transformer on the features of some convolutions (the hybrid of Dosovitskiy et al., ICLR 2021).

For 32-pixel images and no batch norm: convolutions with GroupNorm make 64 tokens, blocks with pre-norm attention
follow, and the mean of the tokens is the feature vector before `head`. On as few images as CIFAR-10 has, a transformer
learns much sooner from convolutions than from patches (Xiao et al., NeurIPS 2021).
"""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return a 3×3 convolution, normalized in groups of eight channels."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.GroupNorm(outputs // 8, outputs), nn.GELU()
    )


@final
class Residual(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(convolution(width, width), convolution(width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return a map of the same shape."""
        grown: Tensor = self.body(x)
        return x + grown


@final
class Block(nn.Module):
    """Attention, then a two-layer perceptron, each behind a LayerNorm and around a shortcut."""

    def __init__(self, width: int, heads: int, expansion: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, expansion * width)
        self.fc2 = nn.Linear(expansion * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens `(B, N, D)`."""
        x = x + self.proj(self._attention(self.norm1(x)))
        grown: Tensor = self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return x + grown

    def _attention(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        queries, keys, values = (
            self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        )
        mixed = F.scaled_dot_product_attention(queries, keys, values)
        return mixed.transpose(1, 2).reshape(batch, tokens, width)


@final
class ViT(nn.Module):
    """Stem, blocks, mean of the tokens, head; images may be smaller than `size` while it trains."""

    def __init__(self, num_classes: int, width: int = 96, depth: int = 4, size: int = 32) -> None:
        super().__init__()
        if width % 32:
            raise ValueError(f"A transformer's width is a multiple of 32, the width of a head; got {width}.")
        self.stem = nn.Sequential(
            convolution(3, width // 4),
            convolution(width // 4, width // 2, stride=2),
            Residual(width // 2),
            nn.Conv2d(width // 2, width, 3, 2, 1),
        )
        self.position = nn.Parameter(torch.zeros(1, width, size // 4, size // 4))
        nn.init.trunc_normal_(self.position, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, width // 32) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = self.stem(x)
        position: Tensor = self.position
        if x.shape[2:] != position.shape[2:]:
            position = F.interpolate(position, x.shape[2:], mode="bilinear", align_corners=False)
        tokens = self.blocks((x + position).flatten(2).transpose(1, 2))
        logits: Tensor = self.head(self.norm(tokens).mean(dim=1))
        return logits
