"""One piece of work at a time on a thread of its own, waited for before anything else is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, final


@final
class Background:
    """Runs one thing; `wait` returns when it is done, and raises what it raised, once."""

    def __init__(self) -> None:
        self._pool: futures.ThreadPoolExecutor | None = None
        self._work: futures.Future[None] | None = None
        self._thread: int | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Start; what was started before must have been waited for."""
        assert self._work is None
        if self._pool is None:
            self._pool = futures.ThreadPoolExecutor(1, thread_name_prefix="owttt", initializer=self._note_thread)
        self._work = self._pool.submit(work)

    def wait(self) -> None:
        """Wait for what was started."""
        work, self._work = self._work, None
        if work is not None:
            try:
                work.result()
            except BaseException:
                if not work.done():
                    self._work = work
                raise

    def finish(self) -> None:
        """Wait for what was started; what it raised is left for `wait`."""
        if self._work is not None:
            futures.wait([self._work])

    @property
    def is_here(self) -> bool:
        """Whether this is the thread that the work is done on."""
        return threading.get_ident() == self._thread

    def _note_thread(self) -> None:
        self._thread = threading.get_ident()

    def __deepcopy__(self, memo: dict[int, Any]) -> Background:
        return Background()

    def __reduce__(self) -> tuple[type[Background], tuple[()]]:
        return Background, ()
