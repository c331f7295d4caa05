"""Data sets that are computed: noise, solids that are made up, and clouds made of digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from owttt.data.dataset import Dataset
from owttt.data.generated.noise import Noise
from owttt.data.generated.solids import Solids
from owttt.data.modalities import CLOUDS, IMAGES, Modality
from owttt.data.readers.voxels import DigitClouds

Loader = Callable[[str, str], Dataset]
"""Opens another data set, by name and split."""


@final
@dataclass(frozen=True)
class Generated:
    """What it is, of which kind, and how it is made of a split, with a loader for what it is made of."""

    about: str
    modality: Modality
    make: Callable[[str, Loader], Dataset]


GENERATED: Final[dict[str, Generated]] = {
    "noise": Generated(
        "normal noise in CIFAR-10's normalized space, as the paper's", IMAGES, lambda _, __: Noise(uniform=False)
    ),
    "uniform-noise": Generated("uniform noise in every pixel", IMAGES, lambda _, __: Noise(uniform=True)),
    "solids": Generated(
        "clouds of balls, boxes, cylinders, cones, tori, tables and chairs, made up", CLOUDS, lambda _, __: Solids()
    ),
    "mnist-clouds": Generated(
        "clouds of MNIST's digits, in the manner of 3D-MNIST (made of mnist)",
        CLOUDS,
        lambda split, load: DigitClouds(load("mnist", split)),
    ),
}

__all__ = ["GENERATED", "Generated"]
