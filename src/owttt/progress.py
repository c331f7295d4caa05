"""Progress bars for long work, only where someone is looking."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def track(items: Iterable[T], description: str, *, total: int | None = None, show: bool = True) -> Iterator[T]:
    """Yield the items behind a bar on the terminal; silent where standard error is no terminal."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    visible = show and sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not visible) as progress:
        yield from progress.track(items, total=total, description=description)
