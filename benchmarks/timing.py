"""Ratios that mean something on a shared machine: alternatives timed in turn, medians, and their spread."""

from __future__ import annotations

import statistics
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Work = Callable[[], float | None]
"""Something to be timed; it may say itself how many seconds counted."""


@dataclass(frozen=True)
class Times:
    """Seconds of every work, round by round."""

    seconds: Mapping[str, list[float]]

    def ratio(self, one: str, other: str) -> dict[str, float]:
        """Return how many times as long one takes as the other: the median over rounds, and its quartiles."""
        each = [a / b for a, b in zip(self.seconds[one], self.seconds[other], strict=True)]
        low, middle, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
        return {"median": middle, "low": low, "high": high}


def interleaved(works: Mapping[str, Work], rounds: int) -> Times:
    """Time all works in turn, in every round; a first round that warms up does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            start = time.perf_counter()
            own = work()
            taken = time.perf_counter() - start if own is None else own
            if number:
                seconds[name].append(taken)
    return Times(seconds)


class Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the tensors that are made inside and live at the same time, at most."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count what it made."""
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made, torch.Tensor):
                self._count(made.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


def peak(work: Callable[[], object]) -> int:
    """Return the most bytes of tensors that a work needs at a time, beyond what is there already."""
    seen = Peak()
    with seen:
        work()
    return seen.most
