"""First light: seven methods on scikit-learn's digits, in fog, among textures nobody taught the network.

The source is 900 real 8×8 digits. The stream is the other 897 under fog (less contrast, a random haze, noise), six
draws of each, mixed one to one with stripes and checkerboards, in batches of 256 as in the paper. Every method sees
the same stream once, without labels, with its default options. Single runs scatter by a few points, with the seed and
with the number of threads.

    python examples/digits.py [--seed 0] [--out out/demo]
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import owttt
from owttt.progress import track

mpl.use("Agg")
import matplotlib.pyplot as plt

CLASSES, BATCH, DRAWS = 10, 256, 6
INK, MUTED = "#22262b", "#8a9099"
COLOURS = ("#b3b8be", "#7f868e", "#e0a43b", "#5aa469", "#b07cc6", "#3f7fbf", "#d6432f")


@dataclass
class Run:
    """What a method did on the stream: metrics after each batch, and every score and threshold."""

    metrics: list[dict[str, float]] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)


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
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=epochs * batches)
    model.train()
    for _ in track(range(epochs), "training the source model"):
        for rows in torch.split(torch.randperm(len(x), generator=random), 60):
            down, right = torch.randint(3, (2,), generator=random).tolist()
            shifted = F.pad(x[rows], (1, 1, 1, 1))[:, :, down : down + 8, right : right + 8]
            noisy = shifted + 0.1 * torch.randn(shifted.shape, generator=random)
            optimiser.zero_grad()
            torch.autograd.backward(F.cross_entropy(model(noisy), y[rows], label_smoothing=0.1))
            optimiser.step()
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


def stream(adapter: owttt.Adapter, x: Tensor, y: Tensor, title: str) -> Run:
    """Let an adapter see the stream once."""
    run, metrics = Run(), owttt.OpenWorldMetrics(CLASSES)
    batches = list(zip(torch.split(x, BATCH), torch.split(y, BATCH), strict=True))
    for images, labels in track(batches, title):
        out = adapter(images)
        metrics.update(out, labels)
        run.metrics.append(metrics.compute())
        run.scores.append(out.score)
        run.thresholds.append(float(out.threshold))
    return run


def table(runs: dict[str, Run]) -> Table:
    """Return the final accuracies, best in bold."""
    result = Table(title="Foggy digits among textures, one pass (%)", caption="acc_h: harmonic mean of the other two")
    for column in ("method", "acc_s (known)", "acc_n (unknown)", "acc_h", "auroc"):
        result.add_column(column, justify="left" if column == "method" else "right")
    best = max(run.metrics[-1]["acc_h"] for run in runs.values())
    for name, run in runs.items():
        last = run.metrics[-1]
        cells = (f"{100 * last[key]:.1f}" for key in ("acc_s", "acc_n", "acc_h", "auroc"))
        result.add_row(name, *cells, style="bold" if last["acc_h"] == best else None)
    return result


def figure(runs: dict[str, Run], y: Tensor, path: Path) -> None:
    """Draw cumulative Acc_H, and the scores of the last quarter before and after adaptation."""
    plt.rcParams.update({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK, "axes.labelcolor": INK})
    canvas, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6), width_ratios=(1.3, 1, 1))
    for (name, run), colour in zip(runs.items(), COLOURS, strict=True):
        curve = [100 * step["acc_h"] for step in run.metrics]
        left.plot(curve, color=colour, lw=2.4 if name == "owttt" else 1.4, label=f"{name}  {curve[-1]:.1f}")
    left.set(title="cumulative Acc_H (%)", xlabel="batch", ylim=(30, 90))
    left.legend(frameon=False, ncols=2, loc="lower right", fontsize=8)
    unknown = (y < 0)[-len(y) // 4 :]
    for axes, name in ((middle, "test"), (right, "owttt")):
        scores = torch.cat(runs[name].scores)[-len(y) // 4 :]
        threshold = runs[name].thresholds[-1]
        bins = torch.linspace(0, float(scores.max()), 40).tolist()
        axes.hist(scores[~unknown].tolist(), bins, color="#3f7fbf", alpha=0.75, label="known")
        axes.hist(scores[unknown].tolist(), bins, color="#d6432f", alpha=0.65, label="unknown")
        axes.axvline(threshold, color=INK, ls="--", lw=1.2, label=f"τ = {threshold:.2f}")
        axes.set(title=f"{name}: scores, last quarter", xlabel="score (high = unknown)")
        axes.legend(frameon=False, fontsize=8)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=MUTED)
    canvas.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=150)
    plt.close(canvas)


def main(arguments: list[str] | None = None) -> dict[str, Run]:
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
    runs = {}
    for name in owttt.METHODS:
        adapter = owttt.wrap(model, name, source=source)
        runs[name] = stream(adapter, images, labels, f"{name:6}")

    console = Console()
    clean = float((model(x_test).argmax(dim=1) == y_test).float().mean())
    console.print(
        f"source model: {100 * clean:.1f} % on clean digits; stream: {len(labels)} images in batches of {BATCH}, "
        f"seed {chosen.seed}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    console.print(table(runs))
    figure(runs, labels, chosen.out / "digits.png")
    console.print(f"picture: {chosen.out / 'digits.png'}")
    return runs


if __name__ == "__main__":
    main()
