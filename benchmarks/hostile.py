"""A long and hostile stream: looks that change, unknowns that come and go, one class only, batches of 1.

    python benchmarks/hostile.py [--model cifar10-resnet11] [--methods test,bn,owttt+,owttt] [--results results]

Scenes are of 500 to 5,000 images; all of them, four times over, are about 126,000. An adapter is never told that a
scene has ended. After every scene what was counted and the adapter's state are written, so that a run that is cut goes
on. The results folder gets a table and a picture, which `owttt report` shows.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from owttt import wrap
from owttt._utils.environment import environment
from owttt._utils.files import read_json, write_json
from owttt._utils.progress import track
from owttt.adapter import Adapter
from owttt.bench.figures.canvas import DARK, MUTED, canvas
from owttt.bench.records import FORMAT, TABLE_KIND, CellRecord, TableRecord
from owttt.bench.text import paper_table
from owttt.data import StreamSpec
from owttt.data.streams.spec import Share
from owttt.data.streams.stream import Stream
from owttt.detector import Evidence
from owttt.methods import find_method
from owttt.models import SourceModel, load
from owttt.types import Prediction

ROUNDS = 4
WINDOW = 1500
"""Samples that a point of a curve is the share of."""
COUNTED = ("known", "right", "kept", "unknown", "rejected")
"""Of a batch: known samples, those classified rightly if rejection is ignored, and with it; unknown ones, and those of
them that were rejected."""


@dataclass(frozen=True)
class Scene:
    """What comes for a while."""

    title: str
    corruption: str | None = None
    unknown: str | None = None
    share: float = 0.0
    """Of unknown samples."""
    drift: Share = "constant"
    """How that share changes in the course of the scene."""
    known: int = 5000
    batch_size: int = 256
    only: int | None = None
    """The one class that is shown."""


SCENES = (
    Scene("clean"),
    Scene("snow, 20 % MNIST", "snow", "mnist", 0.2, known=4000),
    Scene("clean, one class", only=3, known=10_000),
    Scene("fog, SVHN rising from 0 %", "fog", "npz:svhn_test10k.npz", 0.5, "rising", known=2500),
    Scene("noise only", None, "noise", 1.0, known=2000),
    Scene("JPEG, 5 % Tiny-ImageNet", "jpeg_compression", "npz:tinyimagenet_val.npz", 0.05, known=4750),
    Scene("Gaussian noise, 50 % MNIST", "gaussian_noise", "mnist", 0.5, known=2500),
    Scene("clean, batches of 1", batch_size=1, known=500),
    Scene("contrast", "contrast", known=3000),
)
ORDER = [SCENES[number % len(SCENES)] for number in range(ROUNDS * len(SCENES))]


def batches(scene: Scene, model: SourceModel, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a scene's batches."""
    ratio = scene.share / (1 - scene.share) if scene.share < 1 else 1.0
    spec = StreamSpec(
        corruptions=(scene.corruption,) if scene.corruption else (),
        unknown=(scene.unknown,) if scene.unknown else (),
        ratio=ratio if scene.unknown else 0.0,
        share=scene.drift,
        num_samples=scene.known,
        batch_size=scene.batch_size,
        seed=seed,
        repeat=True,
    )
    for x, y in Stream(spec, frame=model.preprocessing.frame, classes=model.classes, names=model.names):
        kept = y < 0 if scene.share == 1 else (y == scene.only if scene.only is not None else y > -2)
        if kept.any():
            yield x[kept], y[kept]


def count(out: Prediction, y: Tensor) -> list[int]:
    """Return what is counted of a batch."""
    known = y >= 0
    rows = (known, known & (out.closed == y), known & (out.labels == y), ~known, ~known & (out.labels < 0))
    return [int(row.sum()) for row in rows]


def show(name: str, adapter: Adapter, model: SourceModel, path: Path) -> dict[str, Any]:
    """Run a method through all scenes, or through those that are left, and return what was counted of each batch."""
    state = path.with_suffix(".safetensors")
    versions = {"method": find_method(name).version, "threshold": Evidence.version}
    made_of = {"scenes": [asdict(scene) for scene in ORDER], "config": adapter.config, "versions": versions}
    about = json.loads(json.dumps(made_of))
    record: dict[str, Any] = {**about, "environment": environment(), "batches": [], "events": []}
    if path.exists() and all(read_json(path).get(field) == value for field, value in about.items()):
        record = read_json(path)
        if len(record["batches"]) < len(ORDER):
            adapter.restore(state)
    for number in range(len(record["batches"]), len(ORDER)):
        title = f"{name:7} {number + 1:2} of {len(ORDER)}: {ORDER[number].title}"
        counted = [count(adapter(x), y) for x, y in track(batches(ORDER[number], model, number), title)]
        record["batches"].append(counted)
        record["events"].append(adapter.watch()["events"])
        adapter.save(state)
        write_json(path, record)
    state.unlink(missing_ok=True)
    return record


def main() -> None:
    """Run, print, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cifar10-resnet11")
    parser.add_argument("--methods", default="test,bn,owttt+,owttt")
    parser.add_argument("--results", type=Path, default=Path("results"))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    model, names = load(chosen.model), chosen.methods.split(",")
    (chosen.results / "tables").mkdir(parents=True, exist_ok=True)
    records = {}
    for name in names:
        adapter = wrap(model, name, source=model.source)
        records[name] = show(name, adapter, model, chosen.results / f"hostile-{name}.json")
    made = table(records, chosen.model)
    write_json(chosen.results / "tables" / "hostile.json", made)
    for ending in (".png", ".svg", f"{DARK}.svg"):
        draw(records, chosen.results / "figures" / f"hostile{ending}")
    Console().print(paper_table(made))


def table(records: dict[str, dict[str, Any]], model: str) -> TableRecord:
    """Return closed accuracy, Acc_S and Acc_N of every scene, all rounds together, as `owttt report` reads tables."""
    titles = [scene.title for scene in SCENES]
    metrics = {scene.title: _metrics(scene) for scene in SCENES}
    cells: list[CellRecord] = [
        {
            "row": name,
            "column": title,
            "published": None,
            "mean": _mean(record, title, metrics[title]),
            "deviation": None,
            "seeds": {},
            "runs": [],
        }
        for name, record in records.items()
        for title in titles
    ]
    first = next(iter(records.values()))
    return {
        "kind": TABLE_KIND,
        "format": FORMAT,
        "name": "hostile",
        "title": "a long and hostile stream",
        "label": "Beyond the paper",
        "draw": "recovery",
        "folder": "",
        "about": (
            f"{model}, {ROUNDS} rounds of {len(SCENES)} scenes, {_samples(first):,} images in one stream; "
            f"threshold by evidence; curves: share of the last {WINDOW:,} samples"
        ),
        "rows": list(records),
        "columns": titles,
        "headings": {title: title for title in titles},
        "metrics": metrics,
        "model": model,
        "corruptions": [],
        "all_corruptions": False,
        "number": None,
        "seeds": list(range(len(ORDER))),
        "stand_ins": {},
        "extra": {},
        "changes": {},
        "cells": cells,
        "failed": [],
        "environment": first["environment"],
        "colors": {name: find_method(name).color for name in records},
        "highlight": "owttt+",
        "baseline": "test",
    }


def _metrics(scene: Scene) -> list[str]:
    known, unknown = ["acc_closed", "acc_s"], ["acc_n"]
    return (known if scene.share < 1 else []) + (unknown if scene.unknown else [])


def _mean(record: dict[str, Any], title: str, metrics: Sequence[str]) -> list[float]:
    """Return metrics of a scene in percent, over all rounds."""
    scenes = [rows for scene, rows in zip(ORDER, record["batches"], strict=True) if scene.title == title]
    known, right, kept, unknown, rejected = np.sum(np.concatenate(scenes), axis=0)
    shares = {"acc_closed": (right, known), "acc_s": (kept, known), "acc_n": (rejected, unknown)}
    return [float(100 * shares[metric][0] / shares[metric][1]) for metric in metrics]


def _samples(record: dict[str, Any]) -> int:
    return sum(known + unknown for rows in record["batches"] for known, _, _, unknown, _ in rows)


def draw(records: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw over the stream how many known samples are classified rightly, and how many unknown ones are rejected."""
    drawn = (
        ("known samples classified rightly, rejection ignored (%)", "right", "known"),
        ("known samples classified rightly and not rejected (%)", "kept", "known"),
        ("unknown samples rejected (%)", "rejected", "unknown"),
    )
    with canvas(path, 3, (18, 3.6)) as panels:
        for axes, (title, part, whole) in zip(panels, drawn, strict=True):
            for name, record in records.items():
                color, width = find_method(name).color, 2.0 if name == "owttt+" else 1.1
                axes.plot(*_curve(record, part, whole), label=name, lw=width, color=color)
            for end in _ends(next(iter(records.values())))[len(SCENES) - 1 : -1 : len(SCENES)]:
                axes.axvline(end / 1000, color=MUTED, lw=0.8, ls=":")
            axes.set(title=title, xlabel="thousand images so far (dotted: the same scenes again)", ylim=(0, 101))
        panels[-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def _ends(record: dict[str, Any]) -> NDArray[np.int64]:
    """Return after how many samples every scene ends."""
    return np.cumsum([sum(row[0] + row[3] for row in rows) for rows in record["batches"]])


def _curve(record: dict[str, Any], part: str, whole: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return thousands of samples after each batch, and the share of the last ones; NaN where there are too few."""
    rows = np.array([row for rows in record["batches"] for row in rows])
    counts = {name: rows[:, place] for place, name in enumerate(COUNTED)}
    place = np.cumsum(counts["known"] + counts["unknown"])
    parts, wholes = (np.concatenate(([0], np.cumsum(counts[name]))) for name in (part, whole))
    first = np.searchsorted(place, place - WINDOW, side="right")
    few = wholes[1:] - wholes[first] < WINDOW // 30
    share = 100 * (parts[1:] - parts[first]) / np.maximum(wholes[1:] - wholes[first], 1)
    return place / 1000, np.where(few, np.nan, share)


if __name__ == "__main__":
    main()
