"""The streams of a process: made when they are first asked for, resumed from what is on disk, never too many."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Protocol, final

from torch import Tensor

from owttt.adapter import Adapter
from owttt.models.source_model import SourceModel
from owttt.serve.decoding import RefusedError
from owttt.serve.limits import Limits
from owttt.serve.worker import Answer, RestartingError, State, Worker
from owttt.triage.store import Reject

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_log = logging.getLogger("owttt.serve")


class Stream(Protocol):
    """A stream, wherever it runs: a `Worker` of this process, or one on a cluster (see `serve.cluster`)."""

    name: str
    limits: Limits
    resumed_from: int | None

    def submit(self, samples: Tensor) -> Future[list[Answer]]:
        """Queue samples; the answers come in their order."""

    def act(self, verb: str, *arguments: Any) -> Future[State]:
        """Queue something to be done with it."""

    def stats(self) -> dict[str, Any]:
        """Return what can be said of it."""

    def thumbnails(self) -> list[tuple[bytes, str, float]]:
        """Return the last rejects."""

    def rejects(self) -> list[Reject] | None:
        """Return what was rejected, without samples."""

    def close_door(self) -> None:
        """Take nothing any more."""

    def close(self, timeout: float) -> None:
        """Answer what is queued, keep the state, and end."""


Tell = Callable[[str, int, int, float], None]
"""What is called for every request that was answered: stream, samples, how many of them unknown, seconds."""
Opener = Callable[[str, Path, Limits, Tell], Stream]
"""Opens a stream of a name, with its state in a folder."""


def here(make: Callable[[], Adapter]) -> Opener:
    """Return what opens streams in this process, each with an adapter of its own."""
    return lambda name, folder, limits, tell: Worker(name, make(), folder, limits, tell)


@final
class Streams:
    """Streams by name; the state of each is below `folder`, in a folder of its name."""

    def __init__(
        self,
        model: SourceModel,
        opener: Opener,
        folder: Path,
        limits: Limits,
        tell: Tell = lambda *_: None,
    ) -> None:
        self.model = model
        self.limits = limits
        self.folder = folder
        self.ready = False
        self._opener = opener
        self._tell = tell
        self._opened: dict[str, Future[Stream]] = {}
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def resume(self) -> dict[str, int | None]:
        """Open the streams that have state on disk; return which batch each goes on from."""
        there = sorted(path.name for path in self.folder.iterdir() if path.is_dir() and NAME.fullmatch(path.name))
        resumed = {}
        for name in there[: self.limits.streams]:
            try:
                resumed[name] = self.get(name).resumed_from
            except (TimeoutError, RestartingError):  # a cluster may have no room yet; the others are served
                _log.exception("stream %s: could not be opened; the next request tries again", name)
        self.ready = True
        return resumed

    def names(self) -> list[str]:
        """Return the streams that are open."""
        return sorted(name for name, future in self._opened.copy().items() if future.done())

    def get(self, name: str) -> Stream:
        """Return a stream, made now if it is new; nobody but those who ask for this one waits for it.

        Raises:
            RefusedError: The name is none (422), or there are too many streams (429).
        """
        if not NAME.fullmatch(name):
            raise RefusedError(
                422, "A stream is named by 1 to 64 letters, digits, - and _, beginning with none of the last."
            )
        mine: Future[Stream] = Future()
        with self._lock:
            if name not in self._opened and len(self._opened) >= self.limits.streams:
                raise RefusedError(429, f"There are {self.limits.streams} streams already, which is the limit.")
            future = self._opened.setdefault(name, mine)
        if future is mine:
            self._open(name, mine)
        return future.result()

    def _open(self, name: str, future: Future[Stream]) -> None:
        """Open a stream that others may be waiting for by now; if that fails, the next who asks tries again."""
        try:
            future.set_result(self._opener(name, self.folder / name, self.limits, self._tell))
        except BaseException as error:
            with self._lock:
                del self._opened[name]
            future.set_exception(error)

    def find(self, name: str) -> Stream:
        """Return a stream that is open.

        Raises:
            RefusedError: There is none of this name (404).
        """
        future = self._opened.get(name)
        if future is None or not future.done():
            raise RefusedError(404, "There is no such stream.")
        return future.result()

    def close(self) -> None:
        """Drain and end all streams."""
        for stream in self.close_doors():
            stream.close(self.limits.timeout)

    def close_doors(self) -> list[Stream]:
        """Take nothing any more, and say so; return the streams, which still answer what is queued."""
        self.ready = False
        streams = [self.find(name) for name in self.names()]
        for stream in streams:
            stream.close_door()
        return streams
