"""Progress of long work: a bar where someone is looking, a line per interval where nobody is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

T = TypeVar("T")

INTERVAL: Final = 30.0
"""Seconds between two lines."""


def track(items: Iterable[T], description: str, *, total: int | None = None, show: bool = True) -> Iterator[T]:
    """Yield the items behind a bar."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    return _shown(items, description, total, lambda _: 1, lambda _: "", show=show)


def live(items: Iterable[T], total: int, description: str, tell: Callable[[T], str]) -> Iterator[T]:
    """Yield the items behind a bar that shows what the last one says of itself."""
    return _shown(items, description, total, lambda _: 1, tell)


def weighted(
    items: Iterable[T],
    description: str,
    total: float,
    weight: Callable[[T], float],
    tell: Callable[[T], str] = lambda _: "",
) -> Iterator[T]:
    """Yield items of different weight behind a bar whose estimate counts the weight, not the items."""
    return _shown(items, description, total, weight, tell, share=True)


def _shown(
    items: Iterable[T],
    description: str,
    total: float | None,
    weight: Callable[[T], float],
    tell: Callable[[T], str],
    *,
    share: bool = False,
    show: bool = True,
) -> Iterator[T]:
    if show and sys.stderr.isatty():
        return _behind_bar(items, description, total, weight, tell, share)
    return _with_lines(items, description, total, weight, tell) if show else iter(items)


def _behind_bar(
    items: Iterable[T],
    description: str,
    total: float | None,
    weight: Callable[[T], float],
    tell: Callable[[T], str],
    share: bool,
) -> Iterator[T]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    count = TextColumn("{task.percentage:.0f} %") if share else MofNCompleteColumn()
    with _bar(BarColumn(), count, TimeRemainingColumn(), TextColumn("{task.fields[said]}", markup=False)) as progress:
        task = progress.add_task(description, total=total, said="")
        for item in items:
            progress.update(task, advance=weight(item), said=tell(item))
            yield item


def _with_lines(
    items: Iterable[T],
    description: str,
    total: float | None,
    weight: Callable[[T], float],
    tell: Callable[[T], str],
) -> Iterator[T]:
    """Yield the items; work that takes longer than an interval says how far it is, on standard error."""
    start = last = time.monotonic()
    done = 0.0
    for item in items:
        done += weight(item)
        now = time.monotonic()
        if now - last >= INTERVAL:
            last = now
            share = f"{100 * done / total:3.0f} %" if total else f"{done:g} done"
            left = f", {duration((now - start) * (total - done) / done)} left" if total and done else ""
            sys.stderr.write(f"{description}: {share}{left}  {tell(item)}".rstrip() + "\n")
            sys.stderr.flush()
        yield item


def duration(seconds: float) -> str:
    """Return a time for people.

    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def byte_bar(description: str, total: int | None, done: int) -> Iterator[Callable[[int], None]]:
    """Show how a download goes; call the result with the number of bytes that came."""
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn  # noqa: PLC0415

    with _bar(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task(description, total=total, completed=done)
        yield lambda count: progress.advance(task, count)


def _bar(*columns: ProgressColumn) -> Progress:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, TextColumn  # noqa: PLC0415

    first = TextColumn("{task.description}", markup=False)
    visible = sys.stderr.isatty()
    return Progress(first, *columns, console=Console(stderr=True), transient=True, disable=not visible)
