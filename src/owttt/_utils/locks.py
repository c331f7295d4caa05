"""Locks: one that a module may hold, and one between processes that says whom it waits for."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, final

from filelock import FileLock, Timeout

TIMEOUT: Final = "OWTTT_LOCK_TIMEOUT"
"""Names the seconds after which a lock that another process holds is an error; if not set, it is waited for."""
_PATIENCE: Final = 2.0


@final
class Lock:
    """A reentrant lock, as a context."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Lock:
        return Lock()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


@contextlib.contextmanager
def waiting_for(path: Path) -> Iterator[None]:
    """Hold a lock between processes; whoever has to wait is told for what, and by whom it is held."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    limit = float(os.environ.get(TIMEOUT, "inf"))
    start, told = time.monotonic(), False
    while True:
        try:
            lock.acquire(timeout=min(_PATIENCE, limit))
            break
        except Timeout:
            if time.monotonic() - start >= limit:
                raise TimeoutError(f"{path}: held by {_holder(path)} for more than {limit:g} s ({TIMEOUT}).") from None
            if not told:
                sys.stderr.write(f"waiting for {path}, held by {_holder(path)}\n")
                told = True
    try:
        _sign(path)
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Have a folder for oneself.

    Raises:
        BlockingIOError: Another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(f"{folder}: in use by {_holder(path)}; give this one another folder.") from None
    try:
        _sign(path)
        yield
    finally:
        lock.release()


def _sign(path: Path) -> None:
    """Write down who holds a lock."""
    with contextlib.suppress(OSError):  # Windows lets nobody write to a locked file
        path.write_text(str(os.getpid()), encoding="utf-8")


def _holder(path: Path) -> str:
    try:
        return f"process {int(path.read_text(encoding='utf-8'))}"
    except (OSError, ValueError):
        return "another process"
