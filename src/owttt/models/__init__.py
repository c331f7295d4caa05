"""Source models by name, and the networks they are made of."""

from owttt.models.networks import NETWORKS, build
from owttt.models.registry import is_function, load, names, preset_of, shipped
from owttt.models.resnet import ResNet, cifar_resnet
from owttt.models.source_model import Preprocessing, SourceModel

__all__ = [
    "NETWORKS",
    "Preprocessing",
    "ResNet",
    "SourceModel",
    "build",
    "cifar_resnet",
    "is_function",
    "load",
    "names",
    "preset_of",
    "shipped",
]
