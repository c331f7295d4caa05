"""First light: all methods on scikit-learn's digits, in fog, among textures nobody taught the network.

The source is 900 real 8×8 digits. The stream is the other 897 under fog (less contrast, a random haze, noise), six
draws of each, mixed one to one with stripes and checkerboards, in batches of 256 as in the paper. Every method sees
the same stream once, without labels, with its default options. Single runs scatter by a few points, with the seed and
with the number of threads.

    python examples/digits.py [--seed 0] [--out out/demo]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from sklearn.datasets import load_digits
from torch import Tensor, nn

import owttt
from owttt._utils.progress import track
from owttt.bench.figures import overview
from owttt.bench.steps import outcome, steps
from owttt.bench.text import methods_table

CLASSES, BATCH, DRAWS = 10, 256, 6


def digits(random: torch.Generator) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return scikit-learn's digits as a source half and a test half."""
    data = load_digits()
    x, y = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, torch.tensor(data.target)
    order = torch.randperm(len(x), generator=random)
    return (x[order[:900]], y[order[:900]]), (x[order[900:]], y[order[900:]])


def network(width: int = 32) -> nn.Module:
    """Return a small convolutional network with BatchNorm."""

    def block(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())

    body = (block(1, width), block(width, width), block(width, 2 * width, 2), block(2 * width, 2 * width))
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, CLASSES))


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int, random: torch.Generator) -> None:
    """Train on the source, with shifts by a pixel and a little noise."""
    batches = -(-len(x) // 60)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=epochs * batches)
    model.train()
    for _ in track(range(epochs), "training the source model"):
        for rows in torch.split(torch.randperm(len(x), generator=random), 60):
            down, right = torch.randint(3, (2,), generator=random).tolist()
            shifted = F.pad(x[rows], (1, 1, 1, 1))[:, :, down : down + 8, right : right + 8]
            noisy = shifted + 0.1 * torch.randn(shifted.shape, generator=random)
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(model(noisy), y[rows], label_smoothing=0.1))
            optimizer.step()
            schedule.step()
    model.eval()


def fog(x: Tensor, random: torch.Generator) -> Tensor:
    """Less contrast, a random haze, some noise."""
    haze = 0.35 * torch.rand(len(x), 1, 1, 1, generator=random)
    return (0.6 * x + haze + 0.12 * torch.randn(x.shape, generator=random)).clamp(0, 1)


def textures(number: int, random: torch.Generator) -> Tensor:
    """Stripes of any direction, width and phase, and random checkerboards: things that are no digits."""
    half = number // 2
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    angle, width, phase = (
        torch.rand(3, half, 1, 1, generator=random) * torch.tensor([math.pi, 1.5, 2 * math.pi])[:, None, None, None]
    )
    stripes = 0.5 + 0.5 * torch.sin((0.5 + width) * (columns * angle.cos() + rows * angle.sin()) + phase)
    boards = (torch.rand(number - half, 1, 4, 4, generator=random) > 0.5).float()
    return torch.cat((stripes[:, None], F.interpolate(boards, size=8)))


def contaminated(x: Tensor, y: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a stream: foggy digits and as many textures, shuffled."""
    known = torch.cat([fog(x, random) for _ in range(DRAWS)])
    unknown = textures(len(known), random)
    labels = torch.cat((y.repeat(DRAWS), torch.full((len(unknown),), owttt.UNKNOWN)))
    order = torch.randperm(len(labels), generator=random)
    return torch.cat((known, unknown))[order], labels[order]


def main(arguments: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Train, stream, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batches", type=int, help="stop after so many batches")
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    chosen = parser.parse_args(arguments)

    random = torch.Generator().manual_seed(chosen.seed)
    torch.manual_seed(chosen.seed)
    (x, y), (x_test, y_test) = digits(random)
    model = network()
    train(model, x, y, chosen.epochs, random)
    images, labels = contaminated(x_test, y_test, random)
    if chosen.batches:
        images, labels = images[: chosen.batches * BATCH], labels[: chosen.batches * BATCH]

    source = owttt.SourceStats.fit(model, [(x, y)], CLASSES)
    batches = list(zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True))
    outcomes: dict[str, Any] = {}
    for name in owttt.METHODS:
        adapter = owttt.wrap(model, name, source=source)
        done = list(track(steps(adapter, batches, CLASSES), f"{name:6}", total=len(batches)))
        outcomes[name] = {**outcome(done), "method": {"name": name, "color": adapter.method.color}}

    console = Console()
    clean = float((model(x_test).argmax(dim=1) == y_test).float().mean())
    console.print(
        f"source model: {100 * clean:.1f} % on clean digits; stream: {len(labels)} images in batches of {BATCH}, "
        f"seed {chosen.seed}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    console.print(methods_table("Foggy digits among textures, one pass", outcomes))
    overview(outcomes, chosen.out / "digits.png", before="test", after="owttt+")
    console.print(f"picture: {chosen.out / 'digits.png'}")
    return outcomes


if __name__ == "__main__":
    main()
