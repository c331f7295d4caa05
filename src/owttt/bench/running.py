"""One run: everything that shows a method a stream goes through here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast, final

import torch

from owttt import models
from owttt._utils import plugins
from owttt._utils.environment import environment
from owttt._utils.locks import waiting_for
from owttt._utils.tensors import digest
from owttt.adapter import Adapter, Classifier, wrap
from owttt.bench.embedding import Embedding
from owttt.bench.records import FORMAT, RUN_KIND, RunRecord
from owttt.bench.results import ALGORITHM, Results
from owttt.bench.spec import RunSpec
from owttt.bench.steps import Step, outcome, steps
from owttt.data import registry
from owttt.data.catalog import data_root
from owttt.data.classes import align
from owttt.data.dataset import Dataset, Framed
from owttt.data.streams.spec import StreamSpec
from owttt.data.streams.stream import Stream
from owttt.detector import SCORES, Evidence, NamedScore, as_score, as_threshold
from owttt.methods import METHODS, find_method
from owttt.models.source_model import SourceModel
from owttt.source import SourceStats, fingerprint
from owttt.training import batches

Show = Callable[[Iterable[Step], int], Iterable[Step]]
"""Passes steps on, and shows them: a progress bar over so many batches."""


def run(spec: RunSpec, results: str | Path | None = None, *, show: Show = lambda done, _: done) -> RunRecord:
    """Find a run in a results folder, or do it and write it there.

    Args:
        spec: Everything that decides the run.
        results: The folder; without one the run is done and written nowhere.
        show: Called with the generator of steps and the number of batches; hands the steps on and may show them.

    Returns:
        The record: metrics, curves, scores, examples, and everything it depends on.

    Raises:
        ValueError: The spec names something that does not exist, or that does not go together.
        FileNotFoundError: Data is not here; the message says how to get it.
    """
    return find_or_do(spec, None if results is None else Path(results), show)[0]


def find_or_do(
    spec: RunSpec, results: Path | None = None, show: Show = lambda done, _: done
) -> tuple[RunRecord, Path | None, bool]:
    """Do what `run` does; return the record, its file, and whether it was done now. Another process is waited for."""
    prepared = Run(spec)
    if results is None:
        return prepared.do(show), None, True
    kept = Results(results)
    found = kept.find(spec, *prepared.decided_by)
    if found is None:
        with waiting_for(kept.lock(spec)):
            found = kept.find(spec, *prepared.decided_by)
            if found is None:
                return kept.write(spec, prepared.do(show)), kept.path(spec), True
    return found[1], found[0], False


@final
class Run:
    """A run that is ready: its model, its stream, its adapter, and what its numbers depend on."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.model = _model_of(spec)

    @cached_property
    def stream(self) -> Stream:
        """The data, opened for the model."""
        return _stream(_essence(self.spec), self.spec.stream)

    @cached_property
    def adapter(self) -> Adapter:
        """The model, wrapped."""
        return make_adapter(self.spec, self.model, self.model.source)

    @property
    def source(self) -> str:
        """The fingerprint of the source statistics; records have it among what they tell of the adapter."""
        return self.model.source.fingerprint

    @property
    def threshold(self) -> str | None:
        """What records tell of a threshold that depends on what source samples score, which `source` does not cover."""
        given = as_threshold(self.spec.threshold)
        if not isinstance(given, Evidence):
            return None
        return given.bound(as_score(self.spec.score), self.model.source).describe()

    @property
    def decided_by(self) -> tuple[dict[str, Any], str, str | None]:
        """Everything besides the spec by which a record of this run is known."""
        return self.fingerprints, self.source, self.threshold

    @property
    def fingerprints(self) -> dict[str, Any]:
        """What decides the numbers besides the spec: model, data, and the version of the algorithm."""
        prints = {"algorithm": ALGORITHM, "model": _fingerprint(self.model), "data": _data(_essence(self.spec))}
        code = {name: plugins.source_digest(name) for name in (self.spec.method, self.spec.score) if _is_foreign(name)}
        versions = {
            "method": find_method(self.spec.method).version,
            "threshold": getattr(as_threshold(self.spec.threshold), "version", 1),
        }
        score = as_score(self.spec.score)
        looks = {"score": score.describe(self.model.source)} if isinstance(score, NamedScore) and score.watches else {}
        others = ({"code": code} if code else {}) | looks
        return prints | others | {name: at for name, at in versions.items() if at > 1}

    def steps(self) -> Iterator[Step]:
        """Show the adapter the stream once, and yield after every batch."""
        return steps(self.adapter, self.stream, len(self.stream.classes))

    def do(self, show: Show) -> RunRecord:
        """Go through the stream and return the record."""
        done: list[Step] = []
        embedding = Embedding(self.adapter, self.stream) if self.spec.embed else None
        for step in show(self.steps(), len(self.stream)):
            done.append(step)
            if embedding is not None:
                embedding.after(len(done))
        record = self._record(done)
        return {**record, "embedding": embedding.record()} if embedding is not None else record

    def _record(self, done: list[Step]) -> RunRecord:
        method = self.adapter.method
        content = {
            "kind": RUN_KIND,
            "format": FORMAT,
            **outcome(done),
            "method": {"name": method.name, "color": method.color},
            "spec": self.spec.describe(),
            "adapter": self.adapter.config,
            "events": [asdict(event) for event in self.adapter.events],
            "data": {
                "known": len(self.stream.known[0]),
                "unknown": {
                    name: len(part) for name, part in zip(self.spec.stream.unknown, self.stream.unknown, strict=True)
                },
                "samples": len(self.stream.plan),
                "batches": len(self.stream),
            },
            "environment": environment(),
            "fingerprints": self.fingerprints,
        }
        return cast(RunRecord, content)


def _is_foreign(name: str) -> bool:
    """Whether a method or a score is somebody else's, whose code may change from run to run."""
    return name not in METHODS and name not in SCORES


def load_model(spec: RunSpec) -> SourceModel:
    """Load the model of a run, restricted to the known set's classes if the run says so."""
    bare = models.is_function(spec.model)
    model = models.load(spec.model, weights=spec.weights, classes=_known(spec).classes if bare else None)
    if not spec.restrict:
        return model
    known = align(_known(spec), model.classes, model.names)
    present = torch.unique(known.labels).tolist()
    return model.only([model.classes[label] for label in present])


def _known(spec: RunSpec) -> Dataset:
    part: dict[str, Any] = {}
    if spec.stream.known in registry.CORRUPTED:
        part = {"corruption": next(iter(spec.stream.corruptions), None), "severity": spec.stream.severity}
    return registry.load(spec.stream.known, **part)


def make_stream(spec: RunSpec, model: SourceModel) -> Stream:
    """Open the data of a run, for a model."""
    frame = model.preprocessing.frame
    return Stream(spec.stream, frame=frame, classes=model.classes, names=model.names, keep=True)


def make_adapter(spec: RunSpec, model: SourceModel, source: SourceStats) -> Adapter:
    """Wrap a model as a run says."""
    return wrap(
        model,
        spec.method,
        source=source,
        order=spec.order,
        score=spec.score,
        threshold=spec.threshold,
        window=spec.window,
        classifier=cast(Classifier, spec.classifier),
        preset=spec.preset,
        classes=model.names,
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
    key = digest((), f"{fingerprint(model)} {known.fingerprint()} {SourceStats.version}")
    path = data_root() / "statistics" / f"{key[:32]}.safetensors"
    if path.exists():
        return SourceStats.load(path)
    source = SourceStats.fit(model, batches(known), len(model.classes))
    path.parent.mkdir(parents=True, exist_ok=True)
    source.save(path)
    return source


def _essence(spec: RunSpec) -> str:
    """Return what of a run decides its model and data, as something to remember them by."""
    stream = replace(StreamSpec(), known=spec.stream.known, corruptions=spec.stream.corruptions, num_samples=1)
    stream = replace(stream, severity=spec.stream.severity, unknown=spec.stream.unknown, repeat=True)
    stream = replace(stream, frost=spec.stream.frost)
    plain = RunSpec(spec.model, stream, source=spec.source, restrict=spec.restrict, weights=spec.weights)
    return json.dumps(plain.describe(), sort_keys=True)


def _model_of(spec: RunSpec) -> SourceModel:
    """Return a run's model, loaded once for all streams that do not decide it."""
    needs_data = spec.restrict or models.is_function(spec.model)
    stream = replace(spec.stream, unknown=(), corruptions=spec.stream.corruptions if needs_data else ())
    return _model(_essence(replace(spec, stream=stream)))


@lru_cache(maxsize=4)
def _model(essence: str) -> SourceModel:
    spec = RunSpec.parse(json.loads(essence))
    model = load_model(spec)
    model.attach(source_of(model, spec.source))
    return model


@lru_cache(maxsize=4)
def _fingerprint(model: SourceModel) -> str:
    return fingerprint(model)


@lru_cache(maxsize=1024)
def _data(essence: str) -> str:
    spec = RunSpec.parse(json.loads(essence))
    return make_stream(spec, _model_of(spec)).fingerprint


@lru_cache(maxsize=1)
def _stream(essence: str, stream: StreamSpec) -> Stream:
    """Return a stream; methods that are shown the same one after the other share its batches."""
    spec = RunSpec.parse(json.loads(essence))
    return make_stream(replace(spec, stream=stream), _model_of(spec))


def forget() -> None:
    """Forget models and data that were loaded, e.g. because files have changed."""
    for remembered in (_model, _fingerprint, _data, _stream):
        remembered.cache_clear()
