"""One stream: a thread that forms micro-batches in the order of arrival, answers them, and learns after.

An answer goes out when its forward pass is done. The next batch waits until the last one is learned from, so what an
answer may have to wait for is bounded by the size of a micro-batch. Whatever else is done with the stream (reset,
snapshot, promote, …) takes its turn in the same queue.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, final

import torch
from torch import Tensor

from owttt.adapter import Adapter
from owttt.serve.limits import Limits
from owttt.serve.recent import Recent, rejects_of
from owttt.serve.snapshots import Snapshots
from owttt.triage.store import Reject, Store
from owttt.types import UNKNOWN, Prediction

T = TypeVar("T")
Answer = dict[str, Any]
State = dict[str, Any]
VERBS: Final = ("reset", "freeze", "thaw", "snapshot", "rollback", "promote", "demote")
"""What can be done with a stream, besides asking it."""
_log = logging.getLogger("owttt.serve")


@final
class OverloadedError(Exception):
    """More samples wait than a stream may hold."""


@final
class ClosedError(Exception):
    """The stream takes nothing any more: the service is going down."""


@final
class RestartingError(Exception):
    """The process of the stream died, and is being started again from its last snapshot."""


@final
@dataclass
class _Job:
    """Samples of one request, and where their answers go; a large one is answered in several batches."""

    samples: Tensor
    arrived: float
    future: Future[list[Answer]] = field(default_factory=Future)
    begun: bool = False
    """Whether a part of it was taken; nobody can give it up then."""
    answers: list[Answer] = field(default_factory=list)


@final
class Worker:
    """A stream of its own: an adapter, a queue, a thread, snapshots and a store of rejects."""

    def __init__(self, name: str, adapter: Adapter, folder: Path, limits: Limits, tell: Callable[..., None]) -> None:
        self.name = name
        self.adapter = adapter
        self.limits = limits
        self.snapshots = Snapshots(folder / "snapshots", limits.snapshots)
        self.store = Store(folder / "rejects.sqlite", limits.rejects) if limits.rejects else None
        resumed = self.snapshots.restore(adapter)
        self.generation = resumed[0] if resumed else 0
        self.resumed_from = resumed[0] if resumed else None
        for damaged in resumed[1] if resumed else ():
            _log.warning("stream %s: a snapshot was passed over, %s", name, damaged)
        self._frozen_mark = folder / "frozen"
        self.frozen = self._frozen_mark.exists()
        self._tell = tell
        self._samples = self._since_snapshot = 0
        self.recent = Recent(limits.thumbnails)
        self._threshold = math.inf
        self._watch: dict[str, float] = {}
        self._queue: deque[_Job | Callable[[], None]] = deque()
        self._queued = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"owttt-{name}", daemon=True)
        self._thread.start()

    def submit(self, samples: Tensor) -> Future[list[Answer]]:
        """Queue samples; the answers come in their order.

        Raises:
            OverloadedError: Too many are waiting.
            ClosedError: The service is going down.
        """
        with self._changed:
            if self._closing:
                raise ClosedError
            if self._queued and self._queued + len(samples) > self.limits.queued:
                raise OverloadedError
            job = _Job(samples, time.perf_counter())
            self._queue.append(job)
            self._queued += len(samples)
            self._changed.notify()
        return job.future

    def act(self, verb: str, *arguments: Any) -> Future[State]:
        """Queue one of `VERBS`, to be done between two batches; what comes of it is how the stream is then.

        Its future raises a LookupError or a ValueError if that cannot be done.
        """
        if verb not in VERBS:
            raise ValueError(f"Expected one of {', '.join(VERBS)}, got {verb!r}.")

        def work() -> State:
            getattr(self, verb)(*arguments)
            return {"stream": self.name, "generation": self.generation, "frozen": self.frozen}

        return self._do(work)

    def _do(self, work: Callable[[], T]) -> Future[T]:
        """Queue something to be done with the stream between two batches."""
        future: Future[T] = Future()

        def turn() -> None:
            if future.set_running_or_notify_cancel():
                with _told(future):
                    future.set_result(work())

        with self._changed:
            if self._closing:
                raise ClosedError
            self._queue.append(turn)
            self._changed.notify()
        return future

    def close_door(self) -> None:
        """Take nothing any more; what is queued is still answered."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def close(self, timeout: float) -> None:
        """Answer what is queued, keep the state, and end."""
        self.close_door()
        self._thread.join(timeout)
        if self.store is not None and not self._thread.is_alive():
            self.store.close()

    def reset(self) -> None:
        """Begin anew; snapshots stay."""
        self.adapter.reset()
        self.recent.clear()
        self._keep_change()

    def freeze(self) -> None:
        """Answer without learning; also after a restart."""
        self.frozen = True
        self._frozen_mark.touch()

    def thaw(self) -> None:
        """Learn again."""
        self.frozen = False
        self._frozen_mark.unlink(missing_ok=True)

    def promote(self, ids: list[int], name: str) -> None:
        """Make a class of rejects.

        Raises:
            LookupError: None of them is there.
            ValueError: They are too few, the name is taken, or no rejects are kept.
        """
        if self.store is None:
            raise ValueError("This service keeps no rejects.")
        rejects = self.store.get(ids)
        if not rejects:
            raise LookupError("None of these rejects is there.")
        samples = torch.stack([torch.from_numpy(one.sample.copy()).float() for one in rejects])
        self.adapter.promote(samples, name)
        self._keep_change()

    def demote(self, name: str) -> None:
        """Take a promoted class back."""
        self.adapter.demote(name)
        self._keep_change()

    def _keep_change(self) -> None:
        """Write what somebody has changed by hand: it must survive a kill."""
        self.generation += 1
        self.snapshot()

    def snapshot(self) -> int:
        """Write the state now."""
        self.snapshots.write(self.adapter, self.generation)
        self._since_snapshot = 0
        return self.generation

    def rollback(self) -> int:
        """Go back to the last snapshot before the present state, and forget later ones.

        Raises:
            LookupError: There is none.
        """
        try:
            found = self.snapshots.restore(self.adapter, before=self.generation)
        except ValueError as error:
            _log.warning("stream %s: %s", self.name, error)
            found = None
        if found is None:
            raise LookupError("There is no earlier snapshot to go back to.")
        self.generation = found[0]
        self.snapshots.drop_after(self.generation)
        self.recent.clear()
        return self.generation

    def stats(self) -> dict[str, Any]:
        """Return what can be said of the stream, as JSON; nobody waits for it."""
        return {
            "stream": self.name,
            "generation": self.generation,
            "resumed_from": self.resumed_from,
            "frozen": self.frozen,
            "samples": self._samples,
            "queued": self._queued,
            "threshold": self._threshold if math.isfinite(self._threshold) else None,
            **self.recent.stats(),
            "watch": self._watch,
            "events": [asdict(event) for event in self.adapter.events[-10:]],
            "snapshots": self.snapshots.known,
            "promoted": list(self.adapter.promoted.names),
            "rejects": 0 if self.store is None else len(self.store),
        }

    def thumbnails(self) -> list[tuple[bytes, str, float]]:
        """Return the last rejects, newest first: a PNG, the class each would have got, its score."""
        return self.recent.thumbnails()

    def rejects(self) -> list[Reject] | None:
        """Return what was rejected, without the samples themselves; None if rejects are not kept."""
        return None if self.store is None else self.store.all(samples=False)

    def _names(self) -> list[str]:
        classes = self.adapter.classes or tuple(map(str, range(self.adapter.method.source.num_classes)))
        return [*classes, *self.adapter.promoted.names]

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                if callable(work):
                    work()
                elif work:
                    self._answer(work)
            except Exception:  # whatever it is, the stream goes on
                _log.exception("stream %s: something failed between two batches", self.name)
        try:
            self.snapshot()
        except Exception:
            _log.exception("stream %s: its last state could not be kept", self.name)

    def _next(self) -> list[tuple[_Job, Tensor]] | Callable[[], None] | None:
        """Wait for something to do: a batch of at most `limits.batch` samples, or a turn; None at the end."""
        with self._changed:
            while not self._queue:
                if self._closing:
                    return None
                self._changed.wait()
            if callable(self._queue[0]):
                turn = self._queue.popleft()
                assert callable(turn)
                return turn
            self._changed.wait_for(lambda: self._closing or self._ready(), self.limits.wait)
            return self._batch()

    def _ready(self) -> bool:
        return self._queued >= self.limits.batch or any(map(callable, self._queue))

    def _batch(self) -> list[tuple[_Job, Tensor]]:
        """Take samples from the front of the queue; what does not fit of a large request stays there."""
        taken: list[tuple[_Job, Tensor]] = []
        room = self.limits.batch
        while room and self._queue and isinstance(job := self._queue[0], _Job):
            if not job.begun and not job.future.set_running_or_notify_cancel():
                self._queued -= len(job.samples)
                self._queue.popleft()
                continue
            job.begun = True
            part, rest = job.samples[:room], job.samples[room:]
            taken.append((job, part))
            room -= len(part)
            self._queued -= len(part)
            job.samples = rest
            if not len(rest):
                self._queue.popleft()
        return taken

    def _answer(self, batch: list[tuple[_Job, Tensor]]) -> None:
        """Answer a batch, then learn from it; what goes wrong is told to those who asked, and the stream goes on."""
        x = torch.cat([part for _, part in batch])
        try:
            out = self.adapter.predict(x) if self.frozen else self.adapter.predict_then_learn(x)
        except Exception as error:  # of a model or method of anybody's; the adapter is as it was before the batch
            self._failed(batch, error)
            return
        self._send(batch, self._answers(out))
        self._learn(x, out)

    def _failed(self, batch: list[tuple[_Job, Tensor]], error: Exception) -> None:
        """Answer the requests of a batch one by one, so that only those at fault are told of an error."""
        if len(batch) > 1:
            for one in batch:
                self._answer([one])
            return
        _log.error("stream %s: a request could not be answered", self.name, exc_info=error)
        for job, _ in batch:
            if not job.future.done():
                job.future.set_exception(error)

    def _answers(self, out: Prediction) -> list[Answer]:
        names = self._names()
        threshold = float(out.threshold)
        self._threshold = threshold
        columns = zip(
            out.labels.tolist(), out.scores.tolist(), out.confidence.tolist(), out.closed.tolist(), strict=True
        )
        return [
            {
                "id": secrets.token_hex(8),
                "label": "unknown" if label == UNKNOWN else names[label],
                "unknown": label == UNKNOWN,
                "score": score,
                "threshold": threshold if math.isfinite(threshold) else None,
                "confidence": confidence,
                "best_known_class": names[closed],
                "generation": self.generation,
            }
            for label, score, confidence, closed in columns
        ]

    def _send(self, batch: list[tuple[_Job, Tensor]], answers: list[Answer]) -> None:
        start, now = 0, time.perf_counter()
        for job, part in batch:
            job.answers += answers[start : start + len(part)]
            start += len(part)
            latency = now - job.arrived
            self.recent.note(answers[start - len(part) : start], latency)
            if not len(job.samples) and not job.future.done():
                job.future.set_result(job.answers)
                self._tell(self.name, len(job.answers), sum(a["unknown"] for a in job.answers), latency)

    def _learn(self, x: Tensor, out: Prediction) -> None:
        """Wait until the batch is learned from; keep rejects; write a snapshot when it is time."""
        self._samples += len(x)
        self._keep(x, out)
        if self.frozen:
            return
        try:
            self.adapter.settle()
            self._watch = self.adapter.watch()
            self.generation += 1
            self._since_snapshot += 1
            if self._since_snapshot >= self.limits.snapshot_every:
                self.snapshot()
        except Exception:  # a step that failed left the adapter as it was; a full disk must not stop answers
            _log.exception("stream %s: generation %d was not learned or kept", self.name, self.generation)

    def _keep(self, x: Tensor, out: Prediction) -> None:
        """Keep what was rejected, and what was doubtful if that is asked for."""
        rejects = rejects_of(x, out, self._names(), self.generation, self.limits.doubtful)
        for reject, sample in rejects:
            if not reject.accepted:
                self.recent.show(sample, reject.best, reject.score)
        if self.store is None or not rejects:
            return
        try:
            self.store.add([reject for reject, _ in rejects])
        except Exception:  # a full disk must not stop answers
            _log.exception("stream %s: rejects were not kept", self.name)


@contextmanager
def _told(future: Future[Any]) -> Iterator[None]:
    """Hand what goes wrong to whoever waits."""
    try:
        yield
    except Exception as error:
        future.set_exception(error)
