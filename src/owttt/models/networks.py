"""Networks by name: `resnet26`, `resnet18`, …, and any of timm's as `timm:<name>`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, final

from torch import nn

from owttt._utils.optional import require
from owttt._utils.suggest import suggest
from owttt.data.modalities import CLOUDS, IMAGES, Modality
from owttt.models.dgcnn import DGCNN
from owttt.models.pooled_resnet import PooledResNet
from owttt.models.resnet import BasicBlock, Bottleneck, ResNet, cifar_resnet
from owttt.models.vit import ViT

TIMM: Final = "timm:"


@final
@dataclass(frozen=True)
class Network:
    """How a network is made from a number of classes and a width, its usual width, and what it takes."""

    make: Callable[[int, int], nn.Module]
    width: int
    modality: Modality = IMAGES


def _dgcnn(classes: int, width: int) -> nn.Module:
    """Return DGCNN. Its published 20 neighbors are of 1,024 points; a narrower one is meant for fewer and has 10."""
    return DGCNN(classes, width, number=20 if width >= 64 else 10)


def _imagenet_resnet(classes: int, width: int) -> nn.Module:
    return ResNet(Bottleneck, (3, 4, 6, 3), classes, width=width, stem="large", eps=1e-3)


NETWORKS: Final[dict[str, Network]] = {
    **{f"resnet{depth}": Network(partial(cifar_resnet, depth), 16) for depth in (20, 26, 32, 56)},
    "resnet11": Network(PooledResNet, 64),
    "resnet18": Network(lambda classes, width: ResNet(BasicBlock, (2, 2, 2, 2), classes, width=width), 64),
    "resnet50": Network(lambda classes, width: ResNet(Bottleneck, (3, 4, 6, 3), classes, width=width), 64),
    "vit": Network(ViT, 96),
    "dgcnn": Network(_dgcnn, 64, CLOUDS),
    "resnet50-keras": Network(_imagenet_resnet, 64),
}


def modality_of_network(network: str) -> Modality:
    """Return what a network takes; all of timm's take images."""
    return NETWORKS[network].modality if network in NETWORKS else IMAGES


def build(network: str, num_classes: int, width: int | None = None) -> nn.Module:
    """Make a network with random weights."""
    if network.startswith(TIMM):
        if width is not None:
            raise ValueError(f"{network} has a width of its own; leave width out.")
        timm = require("timm", "timm's networks", extra="timm")
        name = network.removeprefix(TIMM)
        if not timm.is_model(name):
            raise ValueError(f"timm has no model {name!r}. {suggest(name, timm.list_models())}")
        model: nn.Module = timm.create_model(name, num_classes=num_classes)
        return model
    if network not in NETWORKS:
        raise ValueError(f"No network {network!r}. {suggest(network, NETWORKS)} timm:<name> makes one of timm's.")
    made = NETWORKS[network]
    return made.make(num_classes, made.width if width is None else width)
