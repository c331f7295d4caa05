"""What it is worth to tell the threshold how images score that the network was not trained on.

    python benchmarks/held_out.py [--models cifar10-resnet26,cifar10-vit,cifar100-resnet11]

Of the test set, 2,048 images are held out: `SourceStats.fit(…, held_out=…)` has their scores. The next 1,024 are the
stream, clean, with letters, textures and photographs in shares of 0, 5, 20 and 50 %, in batches of 256. Nothing adapts
(`test`): what differs is the threshold alone. docs/research/threshold.md says what it is for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from owttt import OpenWorldMetrics, SourceStats, wrap
from owttt._utils.progress import track
from owttt.adapter import Adapter
from owttt.data.classes import align
from owttt.data.dataset import Framed
from owttt.data.modalities.base import as_float
from owttt.data.registry import load as load_data
from owttt.models import SourceModel, load
from owttt.training import batches

UNKNOWN = ("npz:emnist_letters_test.npz", "npz:dtd10_64.npz", "npz:imagenette_val.npz")
HELD_OUT, KNOWN, BATCH = 2048, 1024, 256
SHARES = (0.0, 0.05, 0.2, 0.5)


def stream(known: Framed, unknown: Framed, share: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield known images that are not held out, among unknown ones."""
    random = torch.Generator().manual_seed(0)
    some = torch.arange(HELD_OUT, HELD_OUT + KNOWN)
    number = round(KNOWN * share / (1 - share))
    others = torch.randint(len(unknown), (number,), generator=random)
    x = torch.cat([as_float(known.batch(some)), as_float(unknown.batch(others))])
    y = torch.cat([known.labels[some], torch.full((number,), -1)])
    order = torch.randperm(len(x), generator=random)
    for batch in (order[start : start + BATCH] for start in range(0, len(order), BATCH)):
        yield x[batch], y[batch]


def measured(adapter: Adapter, known: Framed, unknown: list[Framed]) -> Iterator[float]:
    """Yield Acc_S without unknown images, then Acc_H at every share, means over the unknown sets, in percent."""
    for share in SHARES:
        values = []
        for others in unknown if share else unknown[:1]:
            adapter.reset()
            metrics = OpenWorldMetrics(num_classes=adapter.method.source.num_classes)
            for x, y in stream(known, others, share):
                metrics.update(adapter(x), y)
            values.append(100 * metrics.compute()["acc_h" if share else "acc_s"])
        yield sum(values) / len(values)


def rows(name: str) -> Iterator[tuple[str, list[float]]]:
    """Yield every threshold with what it gives; without one, how many are classified right where none is unknown."""
    model: SourceModel = load(name)
    data = "cifar100" if "cifar100" in name else "cifar10"
    train, test = (
        Framed(align(load_data(data, split), model.classes, model.names), model.preprocessing.frame)
        for split in ("train", "test")
    )
    parts = [range(start, start + BATCH) for start in range(0, HELD_OUT, BATCH)]
    new = [(as_float(test.batch(part)), test.labels[part.start : part.stop]) for part in parts]
    held_out = SourceStats.fit(model, batches(train), len(model.classes), held_out=new)
    unknown = [Framed(load_data(other, "test"), test.frame) for other in UNKNOWN]
    for title, source, threshold in (
        ("none", model.source, "off"),
        ("Otsu's", model.source, "adaptive"),
        ("by evidence", model.source, "evidence"),
        ("by evidence, images held out", held_out, "evidence"),
    ):
        adapter = wrap(model, "test", source=source, threshold=threshold)
        found = measured(adapter, test, unknown)
        yield title, [next(found)] if threshold == "off" else list(found)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="cifar10-resnet26,cifar10-vit,cifar100-resnet11")
    for name in parser.parse_args().models.split(","):
        shown = Table("threshold", "Acc_S, none unknown", *(f"Acc_H, {100 * share:.0f} %" for share in SHARES[1:]))
        for title, found in track(rows(name), name, total=4):
            shown.add_row(title, *(f"{value:.1f}" for value in found))
        shown.title = name
        Console().print(shown)


if __name__ == "__main__":
    main()
