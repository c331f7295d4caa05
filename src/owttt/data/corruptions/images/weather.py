"""Weather: snow, frost, fog, brightness, spatter."""

from __future__ import annotations

import torch
from torch import Tensor

from owttt.data.corruptions.images import color, filters
from owttt.data.corruptions.images.frost import FrostSource, synthetic_frost
from owttt.data.corruptions.randomness import Randomness


def snow(x: Tensor, constants: tuple[float, ...], random: Randomness) -> Tensor:
    """Flakes: thresholded noise, zoomed and smeared downwards, over a whitened image, and its half-turn.

    Constants: mean and deviation of the noise, zoom, threshold, radius and σ of the smear, how much image is left.
    """
    mean, deviation, zoom, threshold, radius, sigma, left = constants
    noise = mean + deviation * random.normal(1, *x.shape[2:])
    layer = filters.centre_zoom(noise, zoom)
    layer = torch.where(layer < threshold, 0.0, layer)
    layer = (layer.clamp(0, 1) * 255).floor() / 255
    layer = filters.motion_blur(layer, int(radius), sigma, random.uniform(-135, -45))
    grey = color.grey(x)
    whitened = left * x + (1 - left) * torch.maximum(x, grey * 1.5 + 0.5)
    return whitened + layer + layer.flip(2, 3)


def frost(
    x: Tensor, constants: tuple[float, float], random: Randomness, source: FrostSource = synthetic_frost
) -> Tensor:
    """p·x + q·frost, the frost a random crop of a photograph, or of a synthetic sheet."""
    image, ice = constants
    return image * x + ice * source(x.shape[2], x.shape[3], random)


def fog(x: Tensor, constants: tuple[float, float], random: Randomness) -> Tensor:
    """Add a plasma fractal times a, of decay w; scale back to the image's own maximum."""
    amount, decay = constants
    size = 1 << (max(x.shape[2:]) - 1).bit_length()
    levels = []
    step = size
    while step > 1:
        levels.append(random.uniform(-1, 1, 3, size // step, size // step))
        step //= 2
    clouds = filters.plasma(size, decay, levels)[:, None, : x.shape[2], : x.shape[3]]
    most = x.amax(dim=(1, 2, 3), keepdim=True)
    return (x + amount * clouds) * most / (most + amount)


def brightness(x: Tensor, amount: float, random: Randomness) -> Tensor:
    """Add c to V of HSV."""
    del random
    hue, saturation, value = color.to_hsv(x)
    return color.from_hsv(hue, saturation, (value + amount).clamp(0, 1))


def spatter(x: Tensor, constants: tuple[float, ...], random: Randomness) -> Tensor:
    """Drops where smooth noise is above a threshold: bright water, or brown mud.

    Constants: mean and deviation of the noise, σ of its blur, threshold, intensity (mud: σ of the drops), mud or not.
    Water has a bright rim where the drop's height falls off, which stands in for the edge map of the original.
    """
    mean, deviation, sigma, threshold, intensity, mud = constants
    layer = filters.gaussian_blur(mean + deviation * random.normal(1, *x.shape[2:]), sigma)
    layer = torch.where(layer < threshold, 0.0, layer)
    if mud:
        drops = filters.gaussian_blur((layer > threshold).to(x.dtype), intensity)
        drops = torch.where(drops < 0.8, 0.0, drops)
        return x * (1 - drops) + torch.tensor([63, 42, 20])[:, None, None] / 255 * drops
    rim = (layer - filters.gaussian_blur(layer, 1.0)).abs()
    drops = layer * rim
    drops = intensity * drops / drops.amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-6)
    return x + torch.tensor([175, 238, 238])[:, None, None] / 255 * drops
