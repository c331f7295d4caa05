"""A run in full: model × stream × method, as a small JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, final

from owttt.data.catalog import catalog
from owttt.data.streams.spec import StreamSpec
from owttt.detector import DEFAULT_SCORE, DEFAULT_THRESHOLD, SCORES, spelled
from owttt.methods import find_method
from owttt.methods.presets import PRESETS
from owttt.models.registry import preset_of
from owttt.types import PREDICT_THEN_ADAPT, Order

_FIRST_FIELDS: Final = (
    "model", "stream", "method", "preset", "order", "score", "threshold", "window", "classifier", "source", "restrict",
    "options",
)  # fmt: skip
_FIRST_STREAM_FIELDS: Final = {
    "known": "known", "corruptions": "corruptions", "severity": "severity", "frost": "frost", "unknown": "unknown",
    "ratio": "ratio", "num_samples": "number", "batch_size": "batch_size", "seed": "seed", "phases": "phases",
    "cycles": "cycles", "share": "share", "bursts": "bursts", "dirichlet": "dirichlet", "repeat": "repeat",
}  # fmt: skip
"""The fields that the first results were named by, and what they were called."""


@final
@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a run.

    model     a name, a folder, or `package.module:function`
    weights   a file of weights for a model that a function makes
    preset    the paper's options for a benchmark; None: the methods' defaults
    source    the data set that source statistics are fitted on, where the model brings none
    restrict  whether only the classes of the known set compete (ImageNet-R's 200 of 1,000)
    options   of the method, on top of the preset
    embed     whether the record also holds where features lie, by t-SNE, at four stages of the stream
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
    weights: str | None = None
    embed: bool = False

    def describe(self) -> dict[str, Any]:
        """Return what `parse` takes; JSON holds it."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """SHA-256 of what differs from the defaults: a new option with a default renames no result."""
        return _sha256(unusual(self))

    @property
    def first_digest(self) -> str | None:
        """SHA-256 that the first results were named by, of all that a spec was then; None for what came later."""
        later = {part.name for part in fields(self)} - set(_FIRST_FIELDS) - {"embed"}
        later_stream = {part.name for part in fields(self.stream)} - set(_FIRST_STREAM_FIELDS)
        if later & unusual(self).keys() or later_stream & unusual(self.stream).keys():
            return None
        described = self.describe()
        stream = {then: described["stream"][now] for now, then in _FIRST_STREAM_FIELDS.items()}
        score = {"centered": "centred"}.get(self.score, self.score)
        return _sha256({**{name: described[name] for name in _FIRST_FIELDS}, "stream": stream, "score": score})

    @classmethod
    def parse(cls, description: Mapping[str, Any]) -> RunSpec:
        """Read a description."""
        values = dict(description)
        threshold = values.get("threshold")
        if isinstance(threshold, list):
            values["threshold"] = tuple(threshold)
        return cls(**{**values, "stream": StreamSpec.parse(values["stream"])})


def unusual(spec: Any) -> dict[str, Any]:
    """Return the fields of a spec that are not as they are by default, those of a spec inside likewise."""
    kept = {}
    for part in fields(spec):
        value = getattr(spec, part.name)
        default = part.default if part.default_factory is MISSING else part.default_factory()
        if is_dataclass(value):
            kept[part.name] = unusual(value)
        elif value != default:
            kept[part.name] = value
    return kept


def paper_preset(model: str, known: str) -> str | None:
    """Return the preset that a known set belongs to, or else the model."""
    entry = catalog().get(known)
    return (entry.preset if entry else None) or preset_of(model)


def usual(method: str, preset: str | None, score: str | None = None) -> dict[str, Any]:
    """Return how a method is run where nobody says otherwise: with the preset, or as `wrap` does."""
    fitting = None if find_method(method).deployed else preset
    score = score or usual_score(method, fitting)
    return {"method": method, "preset": fitting, "score": score, "threshold": usual_threshold(fitting, score)}


def usual_score(method: str, preset: str | None) -> str:
    """Return the score that goes with a preset, the paper's, or else with a method."""
    return DEFAULT_SCORE if preset else find_method(method).usual_score


def usual_threshold(preset: str | None, score: str = DEFAULT_SCORE) -> str:
    """Return the threshold that goes with a preset: the paper's, also for scores that the source's are not known of."""
    return DEFAULT_THRESHOLD if preset is None and spelled(score) in SCORES else "adaptive"


def with_paper_batches(spec: RunSpec) -> RunSpec:
    """Return the run in the batches its preset has in the paper."""
    if spec.preset is None:
        return spec
    return replace(spec, stream=replace(spec.stream, batch_size=PRESETS[spec.preset].batch_size))


def _sha256(description: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
