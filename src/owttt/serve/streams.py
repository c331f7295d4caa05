"""The streams of a process: made when they are first asked for, resumed from what is on disk, never too many."""

from __future__ import annotations

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
from owttt.serve.worker import Answer, State, Worker
from owttt.triage.store import Reject

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


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
        self._open: dict[str, Stream] = {}
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def resume(self) -> dict[str, int | None]:
        """Open the streams that have state on disk; return which batch each goes on from."""
        there = sorted(path.name for path in self.folder.iterdir() if path.is_dir() and NAME.fullmatch(path.name))
        resumed = {name: self.get(name).resumed_from for name in there[: self.limits.streams]}
        self.ready = True
        return resumed

    def names(self) -> list[str]:
        """Return the streams that are open."""
        return sorted(self._open)

    def get(self, name: str) -> Stream:
        """Return a stream, made now if it is new.

        Raises:
            RefusedError: The name is none (422), or there are too many streams (429).
        """
        if not NAME.fullmatch(name):
            raise RefusedError(
                422, "A stream is named by 1 to 64 letters, digits, - and _, beginning with none of the last."
            )
        with self._lock:
            if name not in self._open:
                if len(self._open) >= self.limits.streams:
                    raise RefusedError(429, f"There are {self.limits.streams} streams already, which is the limit.")
                self._open[name] = self._opener(name, self.folder / name, self.limits, self._tell)
            return self._open[name]

    def find(self, name: str) -> Stream:
        """Return a stream that is open.

        Raises:
            RefusedError: There is none of this name (404).
        """
        stream = self._open.get(name)
        if stream is None:
            raise RefusedError(404, "There is no such stream.")
        return stream

    def close(self) -> None:
        """Drain and end all streams."""
        for stream in self.close_doors():
            stream.close(self.limits.timeout)

    def close_doors(self) -> list[Stream]:
        """Take nothing any more, and say so; return the streams, which still answer what is queued."""
        self.ready = False
        with self._lock:
            streams = list(self._open.values())
        for stream in streams:
            stream.close_door()
        return streams
