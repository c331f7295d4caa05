"""One stream on several processes: each answers its part of every batch, and all of them learn the same.

    torchrun --nproc-per-node 2 examples/several_processes.py [--method owttt+] [--epochs 40]

The model and the stream are those of `digits.py`. On GPUs take the backend "nccl" and give every process its own
device; nothing else changes. The accuracies are those of one process on the same stream.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from digits import BATCH, CLASSES, contaminated, digits, network, train
from torch import Tensor

import owttt


def part(batch: Tensor) -> Tensor:
    """Return the rows of a batch that this process takes; in real life, what its own camera or queue delivers."""
    return batch.tensor_split(dist.get_world_size())[dist.get_rank()]


def main(arguments: list[str] | None = None) -> None:
    """Join the others, wrap, stream, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="owttt+")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batches", type=int, default=12, help="stop after so many batches")
    chosen = parser.parse_args(arguments)

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    random = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    (x, y), test = digits(random)
    model = network()
    train(model, x, y, chosen.epochs, random)
    images, labels = contaminated(*test, random)

    source = owttt.SourceStats.fit(model, [(x, y)], CLASSES, progress=False)
    adapter = owttt.wrap(model, chosen.method, source=source, distributed=True)
    metrics = owttt.OpenWorldMetrics(CLASSES)
    batches = zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True)
    for batch, truth in list(batches)[: chosen.batches]:
        metrics.update(adapter(part(batch)), part(truth))

    told = [f"{name} {100 * metrics.accuracies()[name]:.1f} %" for name in ("acc_s", "acc_n", "acc_h")]
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}, its own part: {', '.join(told)}", flush=True)
    adapter.save("several_processes.safetensors")  # the first rank writes; any number of processes may restore it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
