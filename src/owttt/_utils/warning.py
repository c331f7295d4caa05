"""Warnings that point at the user's line, however deep in the library they are raised."""

from __future__ import annotations

import sys
import warnings
from typing import Final

_INSIDE: Final = ("owttt", "torch", "contextlib", "functools")
"""Packages and modules that a user did not write."""


def warn(message: str) -> None:
    """Warn of something at the innermost line outside this library and torch."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        frame = frame.f_back
        level += 1
    warnings.warn(message, UserWarning, stacklevel=level + 1)
