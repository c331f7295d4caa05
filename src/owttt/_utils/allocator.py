"""Memory that is kept: on Linux with glibc, faster forward passes on a CPU (`benchmarks/allocator.py`).

Activations of a batch are tens of megabytes. glibc gives memory of that size back when it is freed, so that every layer
of every batch faults in its pages anew and the kernel clears them. Told to keep what was freed, it hands out the same
memory again.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_SETTINGS: Final = {
    _MMAP_THRESHOLD: 32 * 2**20,  # the most it takes
    _TRIM_THRESHOLD: 2**31 - 1,
    _TOP_PAD: 128 * 2**20,
}
"""Of `mallopt` (3), in bytes."""


def keep_freed_memory() -> bool:
    """Tell the allocator of this process to keep what is freed; return whether there was one to tell.

    The command line calls it; a program of your own may do so before its first batch.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    taken = [mallopt(option, value) for option, value in _SETTINGS.items()]
    return all(taken)
