"""Memory on Linux with glibc: kept between batches, which is faster, and given back now and then.

Activations of a batch are tens of megabytes. glibc gives memory of that size back when it is freed, so that every layer
of every batch faults in its pages anew and the kernel clears them. Told to keep what was freed, it hands out the same
memory again (`benchmarks/allocator.py`).

Methods learn from sub-batches of ever-new sizes, whose activations leave holes in the heap that nothing fits into. Left
alone, the process grows by half in a hundred batches while what it holds stays the same.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any, Final

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
    mallopt = _of_glibc("mallopt")
    if mallopt is None:
        return False
    taken = [mallopt(option, value) for option, value in _SETTINGS.items()]
    return all(taken)


def give_back_freed_memory() -> bool:
    """Give the holes in the heap back to the system; return whether there was an allocator that could."""
    trim = _of_glibc("malloc_trim")
    if trim is None:
        return False
    trim(0)
    return True


@cache
def _of_glibc(name: str) -> Any:
    """Return a function of the C library, None where there is none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except OSError:
        return None
