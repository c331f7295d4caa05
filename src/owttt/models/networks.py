"""Networks by name: `resnet26`, `resnet18`, …, and any of timm's as `timm:<name>`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from torch import nn

from owttt._utils.optional import require
from owttt._utils.suggest import suggest
from owttt.models.dgcnn import DGCNN
from owttt.models.pooled_resnet import PooledResNet
from owttt.models.resnet import BasicBlock, Bottleneck, ResNet, cifar_resnet
from owttt.models.vit import ViT

TIMM: Final = "timm:"

NETWORKS: Final[dict[str, tuple[int, Callable[[int, int], nn.Module]]]] = {
    **{f"resnet{depth}": (16, partial(cifar_resnet, depth)) for depth in (20, 26, 32, 56)},
    "resnet11": (64, PooledResNet),
    "resnet18": (64, lambda classes, width: ResNet(BasicBlock, (2, 2, 2, 2), classes, width=width)),
    "resnet50": (64, lambda classes, width: ResNet(Bottleneck, (3, 4, 6, 3), classes, width=width)),
    "vit": (96, ViT),
    "dgcnn": (64, lambda classes, width: DGCNN(classes, width, number=20 if width >= 64 else 10)),
    "resnet50-keras": (
        64,
        lambda classes, width: ResNet(Bottleneck, (3, 4, 6, 3), classes, width=width, stem="large", eps=1e-3),
    ),
}
"""Name → usual width, and how it is made from a number of classes and a width.

DGCNN's published 20 neighbors are of 1,024 points; a network narrower than the published one, which is meant for fewer
points, has 10.
"""

OF_CLOUDS: Final = frozenset({"dgcnn"})
"""Those that take clouds."""


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
    usual, make = NETWORKS[network]
    return make(num_classes, usual if width is None else width)
