"""The streams of a process: made when they are first asked for, resumed from what is on disk, never too many."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from owttt.adapter import Adapter
from owttt.models.source_model import SourceModel
from owttt.serve.decoding import RefusedError
from owttt.serve.limits import Limits
from owttt.serve.worker import Worker

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@final
class Streams:
    """Workers by name. `make` gives a new adapter; a stream's state is below `folder`, in a folder of its name."""

    def __init__(
        self,
        model: SourceModel,
        make: Callable[[], Adapter],
        folder: Path,
        limits: Limits,
        tell: Callable[..., None] = lambda *_: None,
    ) -> None:
        self.model = model
        self.limits = limits
        self.folder = folder
        self.ready = False
        self._make = make
        self._tell = tell
        self._workers: dict[str, Worker] = {}
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
        return sorted(self._workers)

    def get(self, name: str) -> Worker:
        """Return a stream, made now if it is new.

        Raises:
            RefusedError: The name is none (422), or there are too many streams (429).
        """
        if not NAME.fullmatch(name):
            raise RefusedError(
                422, "A stream is named by 1 to 64 letters, digits, - and _, beginning with none of the last."
            )
        with self._lock:
            if name not in self._workers:
                if len(self._workers) >= self.limits.streams:
                    raise RefusedError(429, f"There are {self.limits.streams} streams already, which is the limit.")
                self._workers[name] = Worker(name, self._make(), self.folder / name, self.limits, self._tell)
            return self._workers[name]

    def find(self, name: str) -> Worker:
        """Return a stream that is open.

        Raises:
            RefusedError: There is none of this name (404).
        """
        worker = self._workers.get(name)
        if worker is None:
            raise RefusedError(404, "There is no such stream.")
        return worker

    def close(self) -> None:
        """Drain and end all streams."""
        for worker in self.close_doors():
            worker.close(self.limits.timeout)

    def close_doors(self) -> list[Worker]:
        """Take nothing any more, and say so; return the streams, which still answer what is queued."""
        self.ready = False
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.close_door()
        return workers
