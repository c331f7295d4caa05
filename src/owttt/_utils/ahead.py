"""What comes next is made ready on another thread while the present is worked on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[tuple[T, float]]:
    """Yield every item, and the seconds that one had to wait for it.

    One item is made at a time, in order, with as many threads for its tensors as the caller has.
    """
    nothing = object()
    rest = iter(items)
    with ThreadPoolExecutor(1, "owttt-ahead", torch.set_num_threads, (torch.get_num_threads(),)) as pool:
        coming = pool.submit(next, rest, nothing)
        while True:
            start = time.perf_counter()
            item = coming.result()
            waited = time.perf_counter() - start
            if item is nothing:
                return
            coming = pool.submit(next, rest, nothing)
            yield item, waited  # type: ignore[misc]
