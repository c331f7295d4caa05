"""One piece of work at a time on a thread of its own, waited for before anything else is done."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final


@final
class Background:
    """Runs one thing; `wait` returns when it is done, and raises what it raised, once."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._work: Future[None] | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Start; what was started before must have been waited for."""
        assert self._work is None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="owttt")
        self._work = self._pool.submit(work)

    def wait(self) -> None:
        """Wait for what was started."""
        work, self._work = self._work, None
        if work is not None:
            try:
                work.result()
            except KeyboardInterrupt:
                if not work.done():
                    self._work = work
                raise

    def __deepcopy__(self, memo: dict[int, Any]) -> Background:
        return Background()

    def __reduce__(self) -> tuple[type[Background], tuple[()]]:
        return Background, ()
