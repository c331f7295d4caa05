"""The paper's hyper-parameters for each of its benchmarks: `wrap(..., preset="cifar10-c")`.

For OWTTT they are the paper's own (section 4.4); for its competitors those of their papers or of TTAC's comparison,
which the paper follows. What is not listed is the method's default. The bounds on gradients, which are ours, are off
for OWTTT and TTAC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from owttt._utils.suggest import suggest


@dataclass(frozen=True)
class Preset:
    """A benchmark's batch size and the options of each method on it."""

    batch_size: int
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


_IMAGENET_COMPETITORS: Final[dict[str, dict[str, Any]]] = {
    "tent": {"lr": 2.5e-4, "optim": "sgd"},
    "ttac": {
        "lr": 1e-3,
        "class_horizon": 64,
        "class_minimum": 65,
        "class_prior": 64,
        "average_classes": False,
        "max_norm": None,
    },
}

PRESETS: Final[dict[str, Preset]] = {
    "paper": Preset(256),
    "cifar10-c": Preset(
        256, {"owttt": {"lr": 1e-3, "alignment_weight": 1.0, "max_norm": None}, "ttac": {"max_norm": None}}
    ),
    "cifar100-c": Preset(
        256,
        {
            "owttt": {"lr": 1e-4, "alignment_weight": 1.0, "max_norm": None},
            "shot": {"weight": 0.5},
            "ttac": {"lr": 1e-4, "scale": 0.5, "class_horizon": 64, "max_norm": None},
        },
    ),
    "imagenet-c": Preset(
        128, {"owttt": {"lr": 2.5e-5, "alignment_weight": 0.4, "max_norm": None}, **_IMAGENET_COMPETITORS}
    ),
    "imagenet-r": Preset(
        128, {"owttt": {"lr": 2.5e-5, "alignment_weight": 0.4, "max_norm": None}, **_IMAGENET_COMPETITORS}
    ),
    "modelnet40-c": Preset(
        64,
        {
            "owttt": {
                "lr": 1e-4,
                "alignment_weight": 1.0,
                "pool_score": True,
                "pool_momentum": 0.1,
                "max_norm": None,
            },
            "ttac": {"max_norm": None},
        },
    ),
    "visda-c": Preset(
        128, {"owttt": {"lr": 2.5e-5, "alignment_weight": 0.04, "max_norm": None}, **_IMAGENET_COMPETITORS}
    ),
}


def preset_options(preset: str, method: str) -> dict[str, Any]:
    """Return a benchmark's options for a method, empty where its defaults hold."""
    if preset not in PRESETS:
        raise ValueError(f"No preset {preset!r}. {suggest(preset, PRESETS)}")
    return dict(PRESETS[preset].options.get(method, {}))
