"""A run in full: model × stream × method, as a small JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final, final

from owttt.data.streams.spec import StreamSpec
from owttt.methods.presets import PRESETS
from owttt.types import PREDICT_THEN_ADAPT, Order

PRESET_OF_DATA: Final = {
    "cifar10": "cifar10-c",
    "cifar100": "cifar100-c",
    "imagenet": "imagenet-c",
    "modelnet40": "modelnet40-c",
}
PRESET_OF_MODEL: Final = {
    "cifar10-": "cifar10-c",
    "tinyimagenet100-": "cifar100-c",
    "imagenet-": "imagenet-c",
    "modelnet": "modelnet40-c",
}
"""What the paper's options are taken from: its own benchmark, or the one this is a stand-in for."""


@final
@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a run.

    preset    the paper's options for a benchmark; None: the methods' defaults
    source    the data set that source statistics are fitted on, where the model brings none
    restrict  whether only the classes of the known set compete (ImageNet-R's 200 of 1,000)
    options   of the method, on top of the preset
    """

    model: str
    stream: StreamSpec
    method: str = "owttt"
    preset: str | None = None
    order: Order = PREDICT_THEN_ADAPT
    score: str = "cosine"
    threshold: str | float | tuple[float, float] = "adaptive"
    window: int = 512
    classifier: str = "prototypes"
    source: str | None = None
    restrict: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return what `parse` takes; JSON holds it."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """SHA-256 of the description: what tells two runs apart."""
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()

    @classmethod
    def parse(cls, description: Mapping[str, Any]) -> RunSpec:
        """Read a description."""
        values = dict(description)
        threshold = values.get("threshold")
        if isinstance(threshold, list):
            values["threshold"] = tuple(threshold)
        return cls(**{**values, "stream": StreamSpec.parse(values["stream"])})


def paper_preset(model: str, known: str) -> str | None:
    """Return the preset a model and a known set belong to."""
    if known in PRESETS:
        return known
    name = PurePath(model).name
    by_model = (preset for prefix, preset in PRESET_OF_MODEL.items() if name.startswith(prefix))
    return PRESET_OF_DATA.get(known) or next(by_model, None)


def with_paper_batches(spec: RunSpec) -> RunSpec:
    """Return the run in the batches its preset has in the paper."""
    if spec.preset is None:
        return spec
    return replace(spec, stream=replace(spec.stream, batch_size=PRESETS[spec.preset].batch_size))
