"""A lock that a module may hold: copies and pickles of the module get one of their own."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, final


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
