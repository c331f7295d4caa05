"""A long and hostile stream: looks that change, unknowns that come and go, one class only, batches of 1.

    python benchmarks/hostile.py [--model cifar10-resnet26] [--scale 1.0] [--methods test,owttt+,owttt]

Scenes are of 200 to 5,000 images; all of them, four times over, are about 120,000. Prints a table of scenes, draws
accuracy over the stream, and writes all numbers as JSON. An adapter is never told that a scene has ended.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from owttt import OpenWorldMetrics, models, wrap
from owttt._utils.files import write_json
from owttt._utils.progress import track
from owttt.adapter import Adapter
from owttt.bench.figures.canvas import canvas
from owttt.data import StreamSpec
from owttt.data.streams.stream import Stream
from owttt.models import SourceModel

ROUNDS = 4
WINDOW = 2000
"""Samples that a point of the curve is the accuracy of."""


@dataclass(frozen=True)
class Scene:
    """What comes for a while."""

    title: str
    corruption: str | None = None
    unknown: str | None = None
    share: float = 0.0
    """Of unknown samples."""
    known: int = 5000
    batch_size: int = 256
    only: int | None = None
    """The one class that is shown."""


SCENES = (
    Scene("clean"),
    Scene("snow, 20 % MNIST", "snow", "mnist", 0.2, 4000),
    Scene("clean, one class", only=3, known=2000),
    Scene("fog, 50 % SVHN", "fog", "npz:svhn_test10k.npz", 0.5, 2500),
    Scene("noise only", None, "noise", 1.0, 2000),
    Scene("JPEG, 5 % Tiny-ImageNet", "jpeg_compression", "npz:tinyimagenet_val.npz", 0.05, 4750),
    Scene("Gaussian noise, 50 % MNIST", "gaussian_noise", "mnist", 0.5, 2500),
    Scene("clean, batches of 1", batch_size=1, known=500),
    Scene("contrast", "contrast", known=3000),
)


def batches(scene: Scene, model: SourceModel, seed: int, scale: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a scene's batches."""
    ratio = scene.share / (1 - scene.share) if scene.share < 1 else 1.0
    spec = StreamSpec(
        corruptions=(scene.corruption,) if scene.corruption else (),
        unknown=(scene.unknown,) if scene.unknown else (),
        ratio=ratio if scene.unknown else 0.0,
        num_samples=max(scene.batch_size, int(scene.known * scale)),
        batch_size=scene.batch_size,
        seed=seed,
        repeat=True,
    )
    for x, y in Stream(spec, frame=model.preprocessing.frame, classes=model.classes, names=model.names):
        kept = y < 0 if scene.share == 1 else (y == scene.only if scene.only is not None else y > -2)
        if kept.any():
            yield x[kept], y[kept]


def show(name: str, adapter: Adapter, model: SourceModel, scale: float) -> tuple[list[dict[str, object]], list[float]]:
    """Run a method through all scenes; return what each gave, and the accuracy over the stream."""
    rows, right, before = [], [], 0.0
    for number in range(ROUNDS * len(SCENES)):
        scene = SCENES[number % len(SCENES)]
        metrics = OpenWorldMetrics(len(model.classes))
        title = f"{name:7} {number + 1:2} of {ROUNDS * len(SCENES)}: {scene.title}"
        for x, y in track(batches(scene, model, number, scale), title):
            out = adapter(x)
            metrics.update(out, y)
            right += [float(closed == label) for closed, label in zip(out.closed, y, strict=True) if label >= 0]
        events, before = adapter.watch()["events"] - before, adapter.watch()["events"]
        rows.append({"scene": scene.title, **metrics.accuracies(), "events": events})
    return rows, right


def main() -> None:
    """Run, print, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cifar10-resnet26")
    parser.add_argument("--methods", default="test,owttt+,owttt")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the samples of every scene")
    parser.add_argument("--out", type=Path, default=Path("out/hostile"))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    model = models.load(chosen.model)
    results, curves, told = {}, {}, {}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for name in chosen.methods.split(","):
        adapter = wrap(model, name, source=model.source)
        results[name], curves[name] = show(name, adapter, model, chosen.scale)
        told[name] = {"events": [asdict(event) for event in adapter.events], "config": adapter.config}
        write_json(chosen.out.with_suffix(".json"), {"model": chosen.model, "scenes": results, "adapters": told})
    Console().print(table(results))
    draw(curves, chosen.out.with_suffix(".png"))


def table(results: dict[str, list[dict[str, object]]]) -> Table:
    """Return the mean over the rounds of every scene, as a table."""
    shown = Table("scene", *(f"{name}: {what}" for name in results for what in ("closed", "Acc_S", "Acc_N")))
    for scene in SCENES:
        cells = []
        for rows in results.values():
            mine = [row for row in rows if row["scene"] == scene.title]
            for metric in ("acc_closed", "acc_s", "acc_n"):
                value = 100 * float(np.mean([float(torch.as_tensor(row[metric])) for row in mine]))
                cells.append("–" if np.isnan(value) else f"{value:.1f}")
        shown.add_row(scene.title, *cells)
    return shown


def draw(curves: dict[str, list[float]], path: Path) -> None:
    """Draw the accuracy on known samples, rejection ignored, over the stream."""
    with canvas(path, 1, (12, 3.2)) as (axes,):
        for name, right in curves.items():
            total = np.cumsum(np.concatenate(([0.0], right)))
            ends = np.arange(WINDOW // 4, len(right), WINDOW // 4)
            starts = np.maximum(0, ends - WINDOW)
            axes.plot(ends, 100 * (total[ends] - total[starts]) / (ends - starts), label=name, lw=1.4)
        axes.set(title=f"accuracy of the last {WINDOW} known samples, rejection ignored (%)", xlabel="known samples")
        axes.legend(frameon=False)


if __name__ == "__main__":
    main()
