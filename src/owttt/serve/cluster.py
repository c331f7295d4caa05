"""Streams on a Ray cluster: every stream is one actor, with one process and one state, wherever there is room.

Streams are sharded, never replicated: two copies of one would learn different things. So there is nothing for a load
balancer to balance, and requests go from the HTTP front straight to the one actor (by Ray's core; Ray Serve would put
replicas and a proxy in between). An actor's state is below a folder that all nodes share. If its process or its node
dies, Ray starts it again, it resumes from its last snapshot, and what was being answered fails with a 503.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast, final

import torch
from torch import Tensor

from owttt.adapter import Adapter
from owttt.serve.limits import Limits
from owttt.serve.streams import Opener, Tell
from owttt.serve.worker import Answer, ClosedError, OverloadedError, RestartingError, State, Worker
from owttt.triage.store import Reject

CONCURRENT: Final = 64
"""Requests that an actor works on or holds at the same time; more are turned away."""
SPARE: Final = 8
"""Calls beside these: statistics for dashboards, and what is done by hand."""
FOREVER: Final = -1
OPENING: Final = 60.0
"""Seconds that an actor may take to start: its node has to import torch first."""
_log = logging.getLogger("owttt.serve")
T = TypeVar("T")


def on_cluster(ray: Any, make: Callable[[], Adapter], *, cpus: float = 1) -> Opener:
    """Return what opens streams on a cluster that `ray` is connected to.

    Args:
        ray: The module, connected.
        make: Gives a new adapter; it travels to the nodes, so what it refers to must be importable there.
        cpus: Cores that a stream takes on its node; fractions share one.
    """
    travels = ray.put(make)
    actor = ray.remote(_Actor)

    def opened(name: str, folder: Path, limits: Limits, tell: Tell) -> RemoteStream:
        chosen = actor.options(num_cpus=cpus, max_restarts=FOREVER, max_concurrency=CONCURRENT + SPARE)
        made = chosen.remote(name, [travels], str(folder.resolve()), limits, max(1, int(cpus)))
        return RemoteStream(ray, made, name, limits, tell)

    return opened


class _Actor:
    """What runs on a node: a worker as in a service of one process, called by name from outside."""

    def __init__(self, name: str, make: list[Any], folder: str, limits: Limits, threads: int) -> None:
        import ray  # noqa: PLC0415  (only nodes of a cluster come here)

        torch.set_num_threads(threads)
        self.place = {"node": ray.get_runtime_context().get_node_id(), "process": os.getpid()}
        self.worker = Worker(name, ray.get(make[0])(), Path(folder), limits, lambda *_: None)

    def resumed_from(self) -> int | None:
        return self.worker.resumed_from

    def submit(self, samples: Any) -> list[Answer]:
        return self.worker.submit(torch.from_numpy(samples.copy())).result()

    def act(self, verb: str, *arguments: Any) -> State:
        return self.worker.act(verb, *arguments).result()

    def stats(self) -> dict[str, Any]:
        return {**self.worker.stats(), "runs_on": self.place}

    def thumbnails(self) -> list[tuple[bytes, str, float]]:
        return self.worker.thumbnails()

    def rejects(self) -> list[Reject] | None:
        return self.worker.rejects()

    def close(self, timeout: float) -> None:
        self.worker.close(timeout)


@final
class RemoteStream:
    """A stream as its HTTP front sees it."""

    def __init__(self, ray: Any, actor: Any, name: str, limits: Limits, tell: Tell) -> None:
        self.name = name
        self.limits = limits
        self._ray = ray
        self._actor = actor
        self._tell = tell
        self._lock = threading.Lock()
        self._asked = 0
        self._closing = False
        try:
            self.resumed_from = cast("int | None", self._got(actor.resumed_from.remote(), OPENING))
        except BaseException:
            ray.kill(actor, no_restart=True)
            raise

    def submit(self, samples: Tensor) -> Future[list[Answer]]:
        """Send samples to the stream, unless too many requests are there already.

        Raises:
            OverloadedError: They are.
            ClosedError: The service is going down.
        """
        with self._lock:
            if self._closing:
                raise ClosedError
            if self._asked >= CONCURRENT:
                raise OverloadedError
            self._asked += 1
        try:
            reference = self._actor.submit.remote(samples.numpy())
        except BaseException:
            self._left()
            raise
        arrived = time.perf_counter()
        reference.future().add_done_callback(lambda _: self._left())
        future = self._future(reference)
        future.add_done_callback(lambda done: self._answered(done, reference, arrived))
        return future

    def act(self, verb: str, *arguments: Any) -> Future[State]:
        """Let something be done with the stream."""
        if self._closing:
            raise ClosedError
        return self._future(self._actor.act.remote(verb, *arguments))

    def stats(self) -> dict[str, Any]:
        """Return what can be said of the stream."""
        return cast("dict[str, Any]", self._got(self._actor.stats.remote()))

    def thumbnails(self) -> list[tuple[bytes, str, float]]:
        """Return the last rejects."""
        return cast("list[tuple[bytes, str, float]]", self._got(self._actor.thumbnails.remote()))

    def rejects(self) -> list[Reject] | None:
        """Return what was rejected, without samples."""
        return cast("list[Reject] | None", self._got(self._actor.rejects.remote()))

    def close_door(self) -> None:
        """Take nothing any more."""
        with self._lock:
            self._closing = True

    def close(self, timeout: float) -> None:
        """Let the stream answer what it has, keep its state, and end."""
        self.close_door()
        with suppress(self._ray.exceptions.RayError):
            self._ray.get(self._actor.close.remote(timeout), timeout=timeout + 1)
        self._ray.kill(self._actor, no_restart=True)

    def _left(self) -> None:
        """Count a request whose actor is done with it, whether or not somebody still waits."""
        with self._lock:
            self._asked -= 1

    def _answered(self, done: Future[list[Answer]], reference: Any, arrived: float) -> None:
        if done.cancelled():
            self._ray.cancel(reference)
        elif done.exception() is None:
            answers = done.result()
            seconds = time.perf_counter() - arrived
            self._tell(self.name, len(answers), sum(answer["unknown"] for answer in answers), seconds)

    def _got(self, reference: Any, patience: float | None = None) -> Any:
        """Wait for what an actor returns."""
        try:
            return self._ray.get(reference, timeout=patience or self.limits.timeout)
        except self._ray.exceptions.GetTimeoutError as error:
            raise TimeoutError(f"stream {self.name}: its actor does not answer, or finds no room") from error
        except self._ray.exceptions.RayTaskError as error:
            raise _cause(error) from error
        except self._ray.exceptions.RayError as error:
            _log.warning("stream %s: %s", self.name, error)
            raise RestartingError from error

    def _future(self, reference: Any) -> Future[Any]:
        """Return what an actor will return, with its errors as they would be here."""
        future: Future[Any] = Future()

        def done(theirs: Future[Any]) -> None:
            error = theirs.exception()
            if not future.set_running_or_notify_cancel():
                return
            if error is None:
                future.set_result(theirs.result())
            elif isinstance(error, self._ray.exceptions.RayTaskError):
                future.set_exception(_cause(error))
            else:
                future.set_exception(RestartingError())

        reference.future().add_done_callback(done)
        return future


def _cause(error: Any) -> Exception:
    """Return what went wrong inside of an actor."""
    cause = error.cause
    return cause if isinstance(cause, Exception) else RuntimeError(str(cause))
