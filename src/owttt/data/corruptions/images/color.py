"""Colors of batches of RGB images `(B, 3, H, W)` in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor


def grey(x: Tensor) -> Tensor:
    """Return luma `(B, 1, H, W)` (ITU-R 601)."""
    red, green, blue = x.unbind(dim=1)
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]


def to_hsv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return hue in [0, 6), saturation and value, each `(B, H, W)`."""
    value, _ = x.max(dim=1)
    chroma = value - x.amin(dim=1)
    red, green, blue = x.unbind(dim=1)
    safe = chroma.clamp_min(1e-12)
    hue = torch.where(
        value == red,
        ((green - blue) / safe).remainder(6),
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    return torch.where(chroma == 0, 0.0, hue), torch.where(value == 0, 0.0, chroma / value.clamp_min(1e-12)), value


def from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Return RGB images: channel n is V - V·S·max(0, min(k, 4 - k, 1)) with k = (n + H) mod 6, n = 5, 3, 1."""
    channels = []
    for n in (5, 3, 1):
        k = (n + hue).remainder(6)
        channels.append(value - value * saturation * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(channels, dim=1)
