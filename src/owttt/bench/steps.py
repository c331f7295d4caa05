"""A method on a stream, batch by batch: a generator that progress bar, command line and tests all consume."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from owttt._utils.ahead import ahead
from owttt.adapter import Adapter
from owttt.bench.records import ExampleRecord, ScoresRecord
from owttt.metrics import OpenWorldMetrics

CURVES: Final = ("acc_s", "acc_n", "acc_h", "acc_closed", "known_rejected")
BINS: Final = 60
EXAMPLES: Final = 12
"""Samples of every verdict that a record remembers."""


@final
@dataclass(frozen=True)
class Step:
    """What is known after a batch."""

    metrics: dict[str, float]
    """Accuracies of the stream so far; of the last step all metrics."""
    threshold: float
    scores: NDArray[np.float64]
    predicted: NDArray[np.int64]
    """Classes, or `UNKNOWN`."""
    labels: NDArray[np.int64]
    watch: dict[str, float]
    """What the adapter lets watch: the effective number of classes among its last answers, the size of a pool, …"""
    seconds: float
    """Time the adapter took for this batch."""
    waited: float = 0.0
    """Time that passed before its data was there."""

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Which of this batch's samples really were."""
        return self.labels < 0


def steps(adapter: Adapter, stream: Iterable[tuple[Tensor, Tensor]], num_classes: int) -> Iterator[Step]:
    """Show an adapter the stream once, and yield after every batch.

    Accuracies are counted as the batches come; what needs all scores is computed once, for the last step. The next
    batch is read and corrupted while the adapter is at work.
    """
    metrics = OpenWorldMetrics(num_classes)
    device = device_of(adapter)
    batches = ahead(stream)
    coming = next(batches, None)
    while coming is not None:
        (x, y), waited = coming
        start = time.perf_counter()
        prediction = adapter(x.to(device))
        threshold = float(prediction.threshold)
        seconds = time.perf_counter() - start
        metrics.update(prediction, y.to(device))
        coming = next(batches, None)
        yield Step(
            metrics=metrics.compute() if coming is None else metrics.accuracies(),
            threshold=threshold,
            scores=prediction.scores.double().cpu().numpy(),
            predicted=prediction.labels.cpu().numpy(),
            labels=y.cpu().numpy(),
            watch=adapter.watch(),
            seconds=seconds,
            waited=waited,
        )


def outcome(done: Sequence[Step]) -> dict[str, Any]:
    """Return what came of a run: final metrics, curves over the batches, histograms of the scores."""
    if not done:
        raise ValueError("The stream had no batch.")
    return {
        "metrics": done[-1].metrics,
        "curves": {
            **{name: [step.metrics[name] for step in done] for name in CURVES},
            "threshold": [step.threshold for step in done],
            **{name: [step.watch.get(name, math.nan) for step in done] for name in _watched(done)},
        },
        "scores": _histograms(done),
        "examples": examples(done),
        "seconds": [round(step.seconds, 4) for step in done],
        "waiting": round(waiting(done), 4),
    }


def waiting(done: Sequence[Step]) -> float:
    """Return the share of the time that the adapter stood still because data was not there."""
    waited, worked = sum(step.waited for step in done), sum(step.seconds for step in done)
    return waited / (waited + worked) if waited else 0.0


def _watched(done: Sequence[Step]) -> list[str]:
    """Return the names of what a method lets watch, whenever it did."""
    return list(dict.fromkeys(name for step in done for name in step.watch))


def _histograms(done: Sequence[Step]) -> ScoresRecord:
    scores = np.concatenate([step.scores for step in done])
    edges = np.linspace(scores.min(), max(scores.max(), scores.min() + 1e-3), BINS + 1)
    return {
        "edges": edges.round(5).tolist(),
        "known": [np.histogram(step.scores[~step.unknown], edges)[0].tolist() for step in done],
        "unknown": [np.histogram(step.scores[step.unknown], edges)[0].tolist() for step in done],
    }


def examples(done: Sequence[Step]) -> dict[str, list[ExampleRecord]]:
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


def device_of(module: nn.Module) -> torch.device:
    """Return where a module computes."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
