"""Many runs: what is done is never redone, what fails is told and the rest goes on, processes share the work."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import torch

from owttt._utils.allocator import keep_freed_memory
from owttt._utils.processes import die_with_parent, noticing_interruptions
from owttt.bench.records import RunRecord
from owttt.bench.running import find_or_do
from owttt.bench.spec import RunSpec
from owttt.methods import find_method

LOOK: Final = 0.5
"""Seconds between two looks at whether Ctrl-C was pressed."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
WHOLE: Final = 10_000
"""Known samples of a run that takes all there are, as a guess."""


@final
@dataclass(frozen=True)
class Done:
    """What came of a run: its record and file, or why there is none."""

    spec: RunSpec
    record: RunRecord | None
    file: str = ""
    """Below the results folder."""
    error: str = ""
    fresh: bool = True
    """Whether it was run now, not found."""


def cost(spec: RunSpec, whole: int = WHOLE) -> float:
    """Return how long a run takes, in forward passes of a sample; `whole` is the number of all known ones."""
    return find_method(spec.method).cost * (spec.stream.num_samples or whole) * (1 + spec.stream.ratio)


def execute(specs: Sequence[RunSpec], folder: Path, *, jobs: int = 1) -> Iterator[Done]:
    """Run what is not done yet, and yield every run as it is there, in any order.

    If a process dies, those runs that were under way are tried again one by one, to see whose fault it was.
    """
    if jobs < 1:
        raise ValueError(f"--jobs is a number of processes, at least 1, got {jobs}.")
    if jobs == 1:
        yield from (_one(spec, folder) for spec in specs)
        return
    left = list(specs)
    while left:
        lost: list[RunSpec] = []
        yield from _together(left, folder, jobs, lost)
        lost.sort(key=left.index)
        under_way, left = lost[: jobs + 1], lost[jobs + 1 :]
        for spec in under_way:
            dead: list[RunSpec] = []
            yield from _together([spec], folder, 1, dead)
            yield from (Done(one, None, error="Its process died; it may have run out of memory.") for one in dead)


def _together(specs: Sequence[RunSpec], folder: Path, jobs: int, lost: list[RunSpec]) -> Iterator[Done]:
    """Run in processes, and yield what is done; if a process dies, so do all others, and what is not done is `lost`."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")
    others, workers = set(multiprocessing.active_children()), set()
    pool = ProcessPoolExecutor(jobs, context, initializer=_prepare_process, initargs=(threads,))
    try:
        with noticing_interruptions() as check:
            futures = {pool.submit(_one, spec, folder): spec for spec in specs}
            workers = set(multiprocessing.active_children()) - others
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, LOOK, FIRST_COMPLETED)
                check()
                for future in done:
                    if isinstance(future.exception(), BrokenProcessPool):
                        lost.append(futures[future])
                    else:
                        yield _received(futures[future], future)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
        raise
    pool.shutdown()


def _received(spec: RunSpec, future: Future[Done]) -> Done:
    error = future.exception()
    if error and _stops_all(error):
        raise error
    return Done(spec, None, error=told(error)) if error else future.result()


def _prepare_process(threads: int) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    keep_freed_memory()


def _one(spec: RunSpec, folder: Path) -> Done:
    """Find a run or do it."""
    try:
        record, path, fresh = find_or_do(spec, folder)
    except Exception as error:  # whatever a method or a data set raises, the other runs go on
        if _stops_all(error):
            raise
        return Done(spec, None, error=told(error))
    return Done(spec, record, "" if path is None else path.relative_to(folder).as_posix(), fresh=fresh)


def _stops_all(error: BaseException) -> bool:
    """Whether no other run could be written either: a full disk, a quota, a limit, a read-only file system."""
    return isinstance(error, OSError) and error.errno in _FULL


def told(error: BaseException) -> str:
    """Say what went wrong with a run."""
    return f"{type(error).__name__}: {error}"
