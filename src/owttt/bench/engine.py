"""Many runs: what is done is never redone, what fails is told and the rest goes on, processes share the work."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, final

import torch
from filelock import FileLock

from owttt._utils.allocator import keep_freed_memory
from owttt.adapter import Adapter
from owttt.bench.results import ALGORITHM, Results
from owttt.bench.run import load_model, make_adapter, make_stream, record, source_of, steps
from owttt.bench.spec import RunSpec
from owttt.bench.tables import PAPER_NUMBER
from owttt.data.streams.spec import StreamSpec
from owttt.data.streams.stream import Stream
from owttt.models.source_model import SourceModel
from owttt.source import fingerprint

COST: Final = {"test": 1.0, "bn": 1.2, "tent": 2.7, "shot": 4.9, "ttt++": 4.5, "ttac": 4.5, "owttt": 4.4}
"""Time of a sample in forward passes, as measured in `benchmarks`."""


Work = Callable[[RunSpec], dict[str, Any]]
"""What makes the record of a run; processes import it by name."""


@final
@dataclass(frozen=True)
class Done:
    """What came of a run: its record, or why there is none."""

    spec: RunSpec
    record: dict[str, Any] | None
    error: str = ""
    fresh: bool = True
    """Whether it was run now, not found."""


def cost(spec: RunSpec, whole: int = PAPER_NUMBER) -> float:
    """Return how long a run takes, in forward passes of a sample; `whole` is the number of all known ones."""
    return COST.get(spec.method, max(COST.values())) * (spec.stream.number or whole) * (1 + spec.stream.ratio)


def run(spec: RunSpec) -> dict[str, Any]:
    """Do a run and return its record."""
    adapter, stream = prepare(spec)
    return record(spec, adapter, stream, list(steps(adapter, stream, len(stream.classes))))


def prepare(spec: RunSpec) -> tuple[Adapter, Stream]:
    """Return the adapter and the stream of a run."""
    model = _model_of(spec)
    return make_adapter(spec, model, model.source), make_stream(spec, model)


def execute(specs: Sequence[RunSpec], folder: Path, *, jobs: int = 1, work: Work = run) -> Iterator[Done]:
    """Run what is not done yet, and yield every run as it is there, in any order; `work` does one."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    if jobs == 1:
        yield from (_one(spec, folder, work) for spec in specs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_prepare_process, initargs=(threads,)) as pool:
        futures = {pool.submit(_one, spec, folder, work): spec for spec in specs}
        for future in as_completed(futures):
            error = future.exception()
            yield Done(futures[future], None, f"{type(error).__name__}: {error}") if error else future.result()


def _prepare_process(threads: int) -> None:
    torch.set_num_threads(threads)
    keep_freed_memory()


def _one(spec: RunSpec, folder: Path, work: Work) -> Done:
    """Find a run or do it, alone: another process that is at it is waited for."""
    results = Results(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        prints = fingerprints(spec)
        found = results.read(spec, prints)
        if found is None:
            with FileLock(results.path(spec).with_suffix(".lock")):
                found = results.read(spec, prints)
                if found is None:
                    return Done(spec, results.write(spec, work(spec), prints))
        return Done(spec, found, fresh=False)
    except Exception as error:  # whatever a method or a data set raises, the other runs go on
        return Done(spec, None, f"{type(error).__name__}: {error}")


def fingerprints(spec: RunSpec) -> dict[str, Any]:
    """Return what decides a run's numbers besides its spec: model, data, and the version of the algorithm."""
    return {"algorithm": ALGORITHM, "model": fingerprint(_model_of(spec)), "data": _data(_essence(spec))}


def _essence(spec: RunSpec) -> str:
    """Return what of a run decides its model and data, as something to remember them by."""
    stream = replace(StreamSpec(), known=spec.stream.known, corruptions=spec.stream.corruptions, number=1)
    stream = replace(stream, severity=spec.stream.severity, unknown=spec.stream.unknown, repeat=True)
    plain = RunSpec(spec.model, stream, source=spec.source, restrict=spec.restrict)
    return json.dumps(plain.describe(), sort_keys=True)


def _model_of(spec: RunSpec) -> SourceModel:
    """Return a run's model, loaded once for all streams that do not decide it."""
    stream = replace(spec.stream, unknown=(), corruptions=spec.stream.corruptions if spec.restrict else ())
    return _model(_essence(replace(spec, stream=stream)))


@lru_cache(maxsize=4)
def _model(essence: str) -> SourceModel:
    spec = RunSpec.parse(json.loads(essence))
    model = load_model(spec)
    model.attach(source_of(model, spec.source))
    return model


@lru_cache(maxsize=1024)
def _data(essence: str) -> str:
    spec = RunSpec.parse(json.loads(essence))
    return make_stream(spec, _model_of(spec)).fingerprint
