"""Samples that were gathered from small batches and cannot be learned from are not tried forever.

An error leaves an adapter as it was before the batch, with all that was gathered. If one of these samples is why, every
try from then on would fail: after `TRIES` errors in a row they are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, final

from torch import nn

from owttt.methods.gathering import Gathered

TRIES: Final = 2
"""Errors in a row after which what was gathered is dropped."""


@final
class Tries:
    """How many tries to learn from gathered samples raised an error since the last that did not.

    Samples are gathered where a method, or the rails, had a `Gathered` when they were set up.
    """

    def __init__(self, adapter: nn.Module) -> None:
        self._places = [part for part in adapter.modules() if isinstance(part, Gathered)]
        self._failures = 0

    def forget(self) -> None:
        """Begin to count anew."""
        self._failures = 0

    def drop(self, batch: Any) -> None:
        """Drop the samples that a batch is added to."""
        for place in self._used(batch):
            place.clear()

    @contextmanager
    def attempt(self, batch: Any) -> Iterator[None]:
        """Try to learn from a batch, and from what was gathered if it is added to that."""
        gathered = bool(self._used(batch))
        if gathered and self._failures >= TRIES:
            self.drop(batch)
            self.forget()
        try:
            yield
        except Exception:
            self._failures += gathered
            raise
        if gathered:
            self.forget()

    def _used(self, batch: Any) -> list[Gathered]:
        """Return where samples were gathered that a batch is added to."""
        return [place for place in self._places if len(place) and len(batch) < place.size]
