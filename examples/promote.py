"""Make a class of what was rejected: CIFAR-10 in snow, among handwritten digits and house numbers.

    python examples/promote.py [--num-samples 1000] [--unknown mnist,svhn] [--out out/promote]

The network was never taught what a digit is. It rejects digits; the rejected samples are grouped; the group with most
handwritten ones is given the name "digit" (here the labels say which it is; a person would look at the page). From then
on handwritten digits are to be answered with "digit", and house numbers to be unknown still.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import owttt
from owttt import models
from owttt._utils.progress import track
from owttt.data import Stream, StreamSpec
from owttt.serve.decoding import picture
from owttt.triage.clusters import ALONE, clustered
from owttt.triage.export import export
from owttt.triage.store import Reject

Batches = list[tuple[Tensor, Tensor]]


def streams(model: models.SourceModel, sets: list[str], number: int, seed: int) -> Batches:
    """Return known samples in snow, and those of two unknown sets, labeled -1 and -2."""
    batches: Batches = []
    parts = [StreamSpec(corruptions=("snow",), num_samples=number, batch_size=64, seed=seed)]
    parts += [
        StreamSpec(
            corruptions=("snow",), unknown=(name,), num_samples=number // 2, batch_size=64, seed=seed, repeat=True
        )
        for name in sets
    ]
    for place, spec in enumerate(parts):
        for x, y in Stream(spec, frame=model.preprocessing.frame, classes=model.classes, names=model.names):
            kept = y >= 0 if place == 0 else y < 0
            batches.append((x[kept], y[kept] if place == 0 else torch.full((int(kept.sum()),), -place)))
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    return list(zip(torch.split(x[order], 256), torch.split(y[order], 256), strict=True))


def show(adapter: owttt.Adapter, batches: Batches, names: tuple[str, ...], title: str) -> dict[str, float]:
    """Answer a stream; return how often each kind of sample was answered as it should be."""
    said: list[str] = []
    truth: list[int] = []
    for x, y in track(batches, title):
        said += adapter(x).names
        truth += y.tolist()
    kinds = {
        "known: right class": [name == names[label] for name, label in zip(said, truth, strict=True) if label >= 0],
        "handwritten: unknown": [name == "unknown" for name, label in zip(said, truth, strict=True) if label == -1],
        "handwritten: digit": [name == "digit" for name, label in zip(said, truth, strict=True) if label == -1],
        "house numbers: unknown": [name == "unknown" for name, label in zip(said, truth, strict=True) if label == -2],
        "house numbers: digit": [name == "digit" for name, label in zip(said, truth, strict=True) if label == -2],
    }
    return {kind: sum(values) / max(1, len(values)) for kind, values in kinds.items()}


def rejected(adapter: owttt.Adapter, batches: Batches) -> tuple[list[Reject], Tensor, Tensor]:
    """Return the rejected samples of a stream as a store would keep them, as tensors, and their labels."""
    rejects: list[Reject] = []
    samples: list[Tensor] = []
    labels: list[Tensor] = []
    for x, y in batches:
        out = adapter.predict(x)
        assert out.features is not None
        for place in (~out.known).nonzero().flatten().tolist():
            best = str((out.classes or ())[int(out.closed[place])])
            features, sample = out.features[place].numpy(), x[place].half().numpy()
            number = len(rejects)
            score, threshold = float(out.scores[place]), float(out.threshold)
            rejects.append(
                Reject(score, threshold, best, features, sample, picture(x[place]), time=float(number), id=number)
            )
        samples.append(x[~out.known])
        labels.append(y[~out.known])
    return rejects, torch.cat(samples), torch.cat(labels)


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Stream, group, promote, stream again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cifar10-resnet11")
    parser.add_argument("--num-samples", type=int, default=1000, help="known samples per stream")
    parser.add_argument("--unknown", default="mnist,svhn", help="two data sets, with a comma")
    parser.add_argument("--out", type=Path, help="new folder to write what was rejected to")
    chosen = parser.parse_args(arguments)

    model = models.load(chosen.model)
    adapter = owttt.wrap(model, source=model.source, classes=model.names)
    sets = chosen.unknown.split(",")
    first = streams(model, sets, chosen.num_samples, 0)
    before = show(adapter, first, model.names, "before")
    rejects, samples, labels = rejected(adapter, first)
    groups = {number: [one.id for one in group] for number, group in clustered(rejects).items() if number != ALONE}
    digit = max(groups, key=lambda number: int((labels[groups[number]] == -1).sum()))
    adapter.promote(samples[groups[digit]], "digit")
    after = show(adapter, streams(model, sets, chosen.num_samples, 1), model.names, "after")

    pure = float((labels[groups[digit]] == -1).float().mean())
    table = Table(
        "", "before, %", "after, %", title=f"a class of {len(groups[digit])} rejects, {100 * pure:.0f} % handwritten"
    )
    for kind in before:
        table.add_row(kind, f"{100 * before[kind]:.1f}", f"{100 * after[kind]:.1f}")
    console = Console()
    console.print(table)
    if chosen.out is not None:
        export(clustered(rejects), chosen.out)
        console.print(f"what was rejected: {chosen.out / 'index.html'}")
    return {"before": before, "after": after}


if __name__ == "__main__":
    main()
