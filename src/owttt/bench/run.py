"""One run: a method on a stream. A generator that progress bar, command line and tests all consume."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from owttt import models
from owttt._utils.environment import environment
from owttt._utils.tensors import digest
from owttt.adapter import Adapter, Classifier, wrap
from owttt.bench.spec import RunSpec
from owttt.data import registry
from owttt.data.catalog import data_root
from owttt.data.classes import align
from owttt.data.dataset import Framed
from owttt.data.streams.stream import Stream
from owttt.metrics import OpenWorldMetrics
from owttt.models.source_model import SourceModel
from owttt.source import SourceStats, fingerprint
from owttt.training import batches

CURVES: Final = ("acc_s", "acc_n", "acc_h")
BINS: Final = 60
EXAMPLES: Final = 12
"""Samples of every verdict that a record remembers."""
FORMAT: Final = 2
"""Version of the records that runs write."""


@final
@dataclass(frozen=True)
class Step:
    """What is known after a batch."""

    metrics: dict[str, float]
    """Of the stream so far."""
    threshold: float
    scores: NDArray[np.float64]
    predicted: NDArray[np.int64]
    """Classes, or `UNKNOWN`."""
    labels: NDArray[np.int64]
    watch: dict[str, float]
    """What the method lets watch."""
    seconds: float
    """Time the adapter took for this batch."""

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Which of this batch's samples really were."""
        return self.labels < 0


def load_model(spec: RunSpec) -> SourceModel:
    """Load the model of a run, restricted to the known set's classes if the run says so."""
    model = models.load(spec.model)
    if not spec.restrict:
        return model
    part: dict[str, Any] = {}
    if spec.stream.known in registry.CORRUPTED:
        part = {"corruption": next(iter(spec.stream.corruptions), None), "severity": spec.stream.severity}
    known = align(registry.load(spec.stream.known, **part), model.classes, model.names)
    present = torch.unique(known.labels).tolist()
    return model.only([model.classes[label] for label in present])


def make_stream(spec: RunSpec, model: SourceModel) -> Stream:
    """Open the data of a run, for a model."""
    return Stream(spec.stream, frame=model.preprocessing.frame, classes=model.classes, names=model.names)


def make_adapter(spec: RunSpec, model: SourceModel, source: SourceStats | None = None) -> Adapter:
    """Wrap a model as a run says; the source statistics are the model's, or fitted, unless they are given."""
    return wrap(
        model,
        spec.method,
        source=source_of(model, spec.source) if source is None else source,
        order=spec.order,
        score=spec.score,
        threshold=spec.threshold,
        window=spec.window,
        classifier=cast(Classifier, spec.classifier),
        preset=spec.preset,
        **spec.options,
    )


def source_of(model: SourceModel, data: str | None) -> SourceStats:
    """Return the model's statistics, fitted on a data set where it brings none (or another is asked for).

    What was fitted is kept in the data root: on a large set it takes a while.
    """
    if data is None and model.has_source:
        return model.source
    if data is None:
        raise ValueError(
            "This model brings no source statistics (one restricted to some classes never does). Name data of its "
            "classes with --source, e.g. imagenet, npz:<path> or folder:<path>; they are fitted on its training split."
        )
    known = Framed(align(registry.load(data, "train"), model.classes, model.names), model.preprocessing.frame)
    key = digest((), f"{fingerprint(model)} {known.fingerprint()}")
    path = data_root() / "statistics" / f"{key[:32]}.safetensors"
    if path.exists():
        return SourceStats.load(path)
    source = SourceStats.fit(model, batches(known), len(model.classes))
    path.parent.mkdir(parents=True, exist_ok=True)
    source.save(path)
    return source


def steps(adapter: Adapter, stream: Iterable[tuple[Tensor, Tensor]], num_classes: int) -> Iterator[Step]:
    """Show an adapter the stream once, and yield after every batch."""
    metrics = OpenWorldMetrics(num_classes)
    device = device_of(adapter)
    for x, y in stream:
        start = time.perf_counter()
        prediction = adapter(x.to(device))
        threshold = float(prediction.threshold)
        seconds = time.perf_counter() - start
        metrics.update(prediction, y.to(device))
        yield Step(
            metrics=metrics.compute(),
            threshold=threshold,
            scores=prediction.score.double().cpu().numpy(),
            predicted=prediction.label.cpu().numpy(),
            labels=y.cpu().numpy(),
            watch=adapter.method.watch(),
            seconds=seconds,
        )


def outcome(done: Sequence[Step]) -> dict[str, Any]:
    """Return what came of a run: final metrics, curves over the batches, histograms of the scores."""
    if not done:
        raise ValueError("The stream had no batch.")
    scores = np.concatenate([step.scores for step in done])
    edges = np.linspace(scores.min(), max(scores.max(), scores.min() + 1e-3), BINS + 1)
    return {
        "metrics": done[-1].metrics,
        "curves": {
            **{name: [step.metrics[name] for step in done] for name in CURVES},
            "threshold": [step.threshold for step in done],
            **{name: [step.watch[name] for step in done] for name in done[0].watch},
        },
        "scores": {
            "edges": edges.round(5).tolist(),
            "known": [np.histogram(step.scores[~step.unknown], edges)[0].tolist() for step in done],
            "unknown": [np.histogram(step.scores[step.unknown], edges)[0].tolist() for step in done],
        },
        "examples": examples(done),
        "seconds": [round(step.seconds, 4) for step in done],
    }


def examples(done: Sequence[Step]) -> dict[str, list[dict[str, Any]]]:
    """Return some samples of every verdict, spread over the stream: where in it they stand, and how they fared."""
    scores = np.concatenate([step.scores for step in done])
    predicted = np.concatenate([step.predicted for step in done])
    labels = np.concatenate([step.labels for step in done])
    verdicts = {
        "rejected rightly": (predicted < 0) & (labels < 0),
        "rejected wrongly": (predicted < 0) & (labels >= 0),
        "accepted wrongly": (predicted >= 0) & (labels < 0),
        "classified rightly": (predicted >= 0) & (predicted == labels),
        "classified wrongly": (predicted >= 0) & (labels >= 0) & (predicted != labels),
    }
    return {
        verdict: [
            {
                "place": int(place),
                "score": round(float(scores[place]), 4),
                "predicted": int(predicted[place]),
                "label": int(labels[place]),
            }
            for place in _spread(np.flatnonzero(there))
        ]
        for verdict, there in verdicts.items()
    }


def _spread(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return up to `EXAMPLES` of them at even distances."""
    return places[np.linspace(0, len(places) - 1, min(EXAMPLES, len(places))).round().astype(np.int64)]


def record(spec: RunSpec, adapter: Adapter, stream: Stream, done: Sequence[Step]) -> dict[str, Any]:
    """Return a run's outcome with everything it depends on."""
    return {
        "kind": "owttt run",
        "format": FORMAT,
        **outcome(done),
        "spec": spec.describe(),
        "adapter": adapter.config,
        "data": {
            "known": len(stream.known[0]),
            "unknown": {name: len(part) for name, part in zip(spec.stream.unknown, stream.unknown, strict=True)},
            "samples": len(stream.plan),
            "batches": len(stream),
        },
        "environment": environment(),
    }


def device_of(module: nn.Module) -> torch.device:
    """Return where a module computes."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
