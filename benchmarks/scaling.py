"""One stream on several processes: how many times as fast as one, and what they tell each other.

    python benchmarks/scaling.py [--ranks 2] [--rounds 3] [--batch 256] [--network resnet11] [--out out/scaling]

Every process has one thread. In each round the first of them does a batch alone while the others wait, then all do one
together. Bytes are those that a rank receives per batch, counted where they are exchanged.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from speed import Case, fitted, half
from timing import interleaved
from torch import Tensor

import owttt
from owttt._utils.files import write_json

METHODS = ("test", "bn", "tent", "ttac", "owttt")


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count the bytes that are received inside, by the kind of exchange."""
    received = {"gathered": 0, "added up": 0}
    gather, reduce = dist.all_gather, dist.all_reduce

    def all_gather(parts: list[Tensor], part: Tensor, **options: Any) -> Any:
        received["gathered"] += sum(one.nbytes for one in parts) - part.nbytes
        return gather(parts, part, **options)

    def all_reduce(values: Tensor, **options: Any) -> Any:
        received["added up"] += values.nbytes
        return reduce(values, **options)

    with patch.object(dist, "all_gather", all_gather), patch.object(dist, "all_reduce", all_reduce):
        yield received


def rank_work(rank: int, chosen: argparse.Namespace, meeting: str) -> None:
    """Do what a rank does; the first one writes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=chosen.ranks)
    case = Case(chosen.network, (3, 32, 32), chosen.batch)
    model, x = case.model(), case.images(1)
    part = x.tensor_split(chosen.ranks)[rank]
    wrap = partial(owttt.wrap, model, source=fitted(case, model), preset="paper", threshold=half, window=512)
    rows = {}
    for name in METHODS:
        options: dict[str, Any] = {"lr": 0.0} if owttt.METHODS[name].adapts else {}
        alone, together = wrap(name, **options), wrap(name, distributed=True, **options)

        def by_one(adapter: owttt.Adapter = alone) -> None:
            if rank == 0:
                adapter(x)
            dist.barrier()

        def by_all(adapter: owttt.Adapter = together) -> None:
            adapter(part)
            dist.barrier()

        times = interleaved({"alone": by_one, "together": by_all}, chosen.rounds)
        with counted() as received:
            together(part)
        rows[name] = {"times as fast": times.ratio("alone", "together"), "bytes": received}
    if rank == 0:
        numbers = {"parameters": sum(p.numel() for p in model.parameters()), "batch": chosen.batch}
        write_json(chosen.out.with_suffix(".json"), {"ranks": chosen.ranks, **numbers, "methods": rows})
        Console().print(table(chosen, rows))
    dist.destroy_process_group()


def table(chosen: argparse.Namespace, rows: dict[str, Any]) -> Table:
    """Return the results as a table."""
    title = f"{chosen.network}, batches of {chosen.batch}, {chosen.ranks} processes of one thread each"
    shown = Table("", "times as fast as one", "MB gathered per batch", "MB added up", title=title)
    for name, row in rows.items():
        ratio = row["times as fast"]
        speed = f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"
        shown.add_row(name, speed, *(f"{row['bytes'][kind] / 1e6:.2f}" for kind in ("gathered", "added up")))
    return shown


def main() -> None:
    """Start the processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--network", default="resnet11")
    parser.add_argument("--out", type=Path, default=Path("out/scaling"))
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        make = partial(multiprocessing.get_context("spawn").Process, target=rank_work)
        processes = [make(args=(rank, chosen, f"{folder}/meeting")) for rank in range(chosen.ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
