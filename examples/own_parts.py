"""Your own score, model and data set by name, on the command line: no package has to be edited.

From this folder (the method is `own_method.py`'s):

    owttt run --model own_parts:network --source own_parts:shapes --known own_parts:shapes --corruption fog \
        --unknown own_parts:stripes --method test,own_method:PseudoLabel --score own_parts:distance --batch-size 50

A package that registers them as entry points (`owttt.methods`, `owttt.scores`, `owttt.models`, `owttt.datasets`) makes
them names of their own, which `owttt list` shows.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from owttt import Forward, SourceStats

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]


def distance(out: Forward, source: SourceStats) -> Tensor:
    """Score a sample by its distance to the nearest class mean: high = unknown."""
    return torch.cdist(out.features.float(), source.class_means.float()).amin(dim=1)


def network() -> nn.Module:
    """Return an untrained network of three classes that takes images of 32 pixels in 0 … 1."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 3),
    )  # fmt: skip


def shapes(split: str) -> Arrays:
    """Return bars that stand, bars that lie, and squares, on a noisy ground."""
    random = np.random.default_rng(len(split))
    labels = np.arange(150) % 3
    images = random.integers(0, 90, (150, 32, 32, 3), dtype=np.uint8)
    for image, label, (x, y) in zip(images, labels, random.integers(2, 10, (150, 2)), strict=True):
        height, width = ((18, 6), (6, 18), (12, 12))[label]
        image[y : y + height, x : x + width] = 230
    return images, labels


def stripes(split: str) -> Arrays:
    """Return stripes, which are none of the shapes."""
    random = np.random.default_rng(len(split))
    waves = np.sin(np.arange(32) * random.uniform(0.5, 2.5, (150, 1)))
    gray = (127 + 120 * waves).astype(np.uint8)
    return np.broadcast_to(gray[:, None, :, None], (150, 32, 32, 3)).copy(), np.zeros(150, np.int64)
