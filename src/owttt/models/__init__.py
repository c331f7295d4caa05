"""Source models by name, and the networks they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from owttt._utils.suggest import suggest
from owttt.models.imagenet import CONVERSIONS, load_imagenet
from owttt.models.networks import NETWORKS, build
from owttt.models.package import read_model
from owttt.models.resnet import ResNet, cifar_resnet
from owttt.models.source_model import Preprocessing, SourceModel

WEIGHTS: Final = Path(__file__).with_name("weights")


def shipped() -> list[str]:
    """Return the names of the models inside the package."""
    return sorted(path.parent.name for path in WEIGHTS.glob("*/model.safetensors"))


def names() -> list[str]:
    """Return all names that `load` knows."""
    return [*shipped(), *CONVERSIONS]


def load(name: str | Path) -> SourceModel:
    """Load a source model in evaluation mode: a name of `names()`, or the folder that `owttt train` wrote.

    It takes RGB images, uint8 or float in 0 … 1; its preprocessing is inside.
    """
    if name in shipped():
        return read_model(WEIGHTS / str(name))
    if name in CONVERSIONS:
        return load_imagenet(str(name))
    if Path(name).is_dir():
        return read_model(Path(name))
    raise ValueError(
        f"No model {str(name)!r}. {suggest(str(name), names())} A folder that `owttt train` wrote is one too."
    )


__all__ = [
    "NETWORKS",
    "Preprocessing",
    "ResNet",
    "SourceModel",
    "build",
    "cifar_resnet",
    "load",
    "names",
    "shipped",
]
