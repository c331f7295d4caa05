"""Progress bars for long work, only where someone is looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

T = TypeVar("T")


def track(items: Iterable[T], description: str, *, total: int | None = None, show: bool = True) -> Iterator[T]:
    """Yield the items behind a bar on the terminal; silent where standard error is no terminal."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with _bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), show=show) as progress:
        yield from progress.track(items, total=total, description=description)


def live(items: Iterable[T], total: int, description: str, tell: Callable[[T], str]) -> Iterator[T]:
    """Yield the items behind a bar that shows what the last one says of itself."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[said]}"))
    with _bar(*columns) as progress:
        task = progress.add_task(description, total=total, said="")
        for item in items:
            progress.update(task, advance=1, said=tell(item))
            yield item


def weighted(items: Iterable[T], description: str, total: float, weight: Callable[[T], float]) -> Iterator[T]:
    """Yield items of different weight behind a bar whose estimate counts the weight, not the items."""
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[count]}"),
    )
    with _bar(*columns) as progress:
        task = progress.add_task(description, total=total, count="")
        for number, item in enumerate(items, start=1):
            progress.update(task, advance=weight(item), count=f"{number} done")
            yield item


@contextmanager
def byte_bar(description: str, total: int | None, done: int) -> Iterator[Callable[[int], None]]:
    """Show how a download goes; call the result with the number of bytes that came."""
    with _bar(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task(description, total=total, completed=done)
        yield lambda count: progress.advance(task, count)


def _bar(*columns: ProgressColumn, show: bool = True) -> Progress:
    visible = show and sys.stderr.isatty()
    first = TextColumn("{task.description}")
    return Progress(first, *columns, console=Console(stderr=True), transient=True, disable=not visible)
