"""Processes that do not outlive the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LOOK: Final = 1.0
"""Seconds between two looks at the parent, where the system does not tell of its end."""


@contextmanager
def noticing_interruptions() -> Iterator[Callable[[], None]]:
    """Give a function that raises KeyboardInterrupt if Ctrl-C was pressed meanwhile.

    Python raises it wherever it happens to be; in a callback or a destructor of somebody's it is swallowed, and a
    campaign would go on. Whoever asks every now and then does not miss it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        came.set()
        if callable(before):
            before(number, frame)

    def check() -> None:
        if came.is_set():
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def die_with_parent() -> None:
    """Let this process end when its parent does, however that ends."""
    parent = os.getppid()
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            return
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)
