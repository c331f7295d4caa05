"""Help with mistyped names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return a sentence that says which of the choices a name may have meant."""
    known = list(choices)
    if not known:
        return ""
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(close)}?" if close else f"Choose one of {', '.join(known)}."
