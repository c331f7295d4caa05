"""Speed and memory as ratios measured in one run: a batch of every method against the passes it cannot do without.

    python benchmarks/speed.py [--cases cifar-resnet11-256,…] [--rounds 5] [--threads 2] [--out out/speed]

floor     one forward pass of the batch without gradient, and one forward and backward pass of it; nothing else
own       the passes that a method needs, and nothing else (see `bare`)
literal   OWTTT as the authors' program does it (`literal.py`)

Seconds mean nothing on a shared machine. All works of a case are timed in turn in every round; a ratio is the median
over rounds, with its quartiles. Learning rates are 0 and every second sample is rejected, so that all rounds do the
same. Prints a table per case, draws the ratios, and writes all numbers as JSON.
"""

from __future__ import annotations

import argparse
import platform
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from literal import Literal
from parts import parts
from rich.console import Console
from rich.table import Table
from timing import Times, Work, interleaved, peak
from torch import Tensor, nn

import owttt
from owttt._utils.allocator import keep_freed_memory
from owttt._utils.files import write_json
from owttt.bench.figures.canvas import canvas
from owttt.functional import otsu_threshold
from owttt.models.networks import build
from owttt.network.features import FeatureExtractor
from owttt.network.norm import (
    affine_parameters,
    batch_norms,
    batch_statistics,
    keep_group_norm_alive,
    moving_statistics,
)
from owttt.types import ADAPT_THEN_PREDICT

LONG = 200_000


@dataclass(frozen=True)
class Case:
    """A network and a batch."""

    network: str
    shape: tuple[int, ...]
    batch: int
    classes: int = 10
    width: int | None = None

    def model(self) -> nn.Module:
        """Return it with random weights, as the library's own models run: images in channels_last."""
        torch.manual_seed(0)
        made = build(self.network, self.classes, self.width).eval()
        for weight in made.parameters():
            if weight.dim() == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        return made

    def images(self, seed: int) -> Tensor:
        """Return a batch of noise of all contrasts."""
        random = torch.Generator().manual_seed(seed)
        x = torch.rand(self.batch, *self.shape, generator=random)
        x = x * torch.rand(self.batch, *(1 for _ in self.shape), generator=random)
        return x.contiguous(memory_format=torch.channels_last) if len(self.shape) == 3 else x


CASES = {
    **{f"cifar-resnet11-{batch}": Case("resnet11", (3, 32, 32), batch) for batch in (256, 64, 1)},
    **{f"cifar-resnet50-{batch}": Case("resnet50", (3, 32, 32), batch) for batch in (256, 64, 1)},
    "imagenet-resnet50-32": Case("resnet50-keras", (3, 224, 224), 32, classes=1000),
    "cifar-vit-256": Case("vit", (3, 32, 32), 256),
    "clouds-dgcnn-64": Case("dgcnn", (256, 3), 64, width=16),
}
USUAL = "cifar-resnet11-256,cifar-resnet11-64,cifar-resnet11-1,cifar-vit-256,clouds-dgcnn-64"


def half(scores: Tensor) -> Tensor:
    """Do the work of the adaptive threshold, then split the batch in the middle, so that every round does the same."""
    otsu_threshold(scores)
    return scores[-len(scores) // 2 :].median()


def bare(network: FeatureExtractor, x: Tensor) -> dict[str, Work]:
    """Return the passes that methods cannot do without, by name; those named after a method are just what it needs."""
    network.requires_grad_(True)
    keep_group_norm_alive(network)
    affine = affine_parameters(network)
    middle = max(1, len(x) // 2)

    def forward() -> None:
        with torch.no_grad():
            network(x)

    def batch_forward() -> None:
        with torch.no_grad(), batch_statistics(network):
            network(x)

    def backward(rows: Tensor, mode: Callable[[nn.Module], Any] | None = None) -> None:
        if mode is None:
            features = network(rows).features
        else:
            with mode(network):
                features = network(rows).features
        torch.autograd.backward(features.sum())
        network.zero_grad()

    def tent() -> None:
        network.requires_grad_(False)
        for parameter in affine:
            parameter.requires_grad_(True)
        with batch_statistics(network):
            logits = network(x).logits
        torch.autograd.backward(logits.sum())
        network.zero_grad()
        network.requires_grad_(True)

    def trained() -> None:
        forward()
        backward(x, moving_statistics)

    def pruned() -> None:
        forward()
        backward(x[:middle])
        backward(x[middle:] if len(x) > 1 else x, moving_statistics)

    def floor() -> None:
        forward()
        backward(x)

    return {
        "forward": forward,
        "floor": floor,
        "own test": forward,
        "own bn": batch_forward,
        "own tent": tent,
        **{f"own {name}": trained for name in ("shot", "ttt++", "ttac")},
        "own owttt": pruned,
        "own owttt+": forward,
    }


def answered(adapter: owttt.Adapter, x: Tensor) -> float:
    """Return the seconds until a batch is answered; it is learned from after, while nobody waits."""
    start = time.perf_counter()
    adapter.predict_then_learn(x)
    taken = time.perf_counter() - start
    adapter.settle()
    return taken


def fitted(case: Case, model: nn.Module) -> owttt.SourceStats:
    """Return source statistics of noise, two samples a class or more."""
    images = -(-2 * case.classes // case.batch)
    labels = torch.arange(images * case.batch) % case.classes
    loader = [(case.images(2 + seed), part) for seed, part in enumerate(torch.split(labels, case.batch))]
    return owttt.SourceStats.fit(model, loader, case.classes, progress=False)


def works(case: Case) -> tuple[dict[str, Work], dict[str, Work], int]:
    """Return everything that is timed of a case, what its memory is measured of, and the number of features."""
    model, x = case.model(), case.images(1)
    wrap = partial(
        owttt.wrap, model, source=fitted(case, model), window=max(512, 2 * case.batch), threshold=half, preset="paper"
    )
    network = wrap("test").method.network
    source = wrap("test").method.source
    timed: dict[str, Work] = bare(network, x)
    for name, method in owttt.METHODS.items():
        if name in ("bn", "tent") and not batch_norms(network):
            continue
        options: dict[str, Any] = {"lr": 0.0} if "lr" in method().options() else {}
        adapter = wrap(name, **options)
        timed[name] = partial(_call, adapter, x)
    timed["owttt, adapt then predict"] = partial(_call, wrap("owttt", order=ADAPT_THEN_PREDICT, lr=0.0), x)
    timed["owttt, until answered"] = partial(answered, wrap("owttt", lr=0.0), x)
    timed["literal"] = partial(_call, Literal(network, source, 0.0, half=True), x)
    memory = {name: timed[name] for name in ("floor", "owttt", "literal")}
    return timed, memory, len(source.mean)


def _call(adapter: Callable[[Tensor], object], x: Tensor) -> None:
    adapter(x)


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Return the ratios of a case."""
    case = CASES[name]
    timed, memory, features = works(case)
    times = interleaved(timed, rounds)
    peaks = {kind: peak(work) for kind, work in memory.items()}
    methods = [method for method in owttt.METHODS if method in timed]
    return {
        "per forward": {method: times.ratio(method, "forward") for method in methods},
        "per own passes": {method: times.ratio(method, f"own {method}") for method in methods if method != "owttt+"},
        "per floor": {method: times.ratio(method, "floor") for method in (*methods, "literal")},
        "literal over owttt": times.ratio("literal", "owttt"),
        "literal over owttt, adapt then predict": times.ratio("literal", "owttt, adapt then predict"),
        "until answered, per forward": times.ratio("owttt, until answered", "forward"),
        "memory per floor": {kind: peaks[kind] / peaks["floor"] for kind in ("owttt", "literal")},
        "outside the passes": outside(rounds, case.batch, features, case.classes)
        / statistics.median(times.seconds["owttt"]),
    }


class Vectors(nn.Module):
    """As good as no network: vectors go in and are the features."""

    def __init__(self, dimension: int, classes: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dimension))
        self.head = nn.Linear(dimension, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(x * self.scale)
        return logits


def outside(rounds: int, batch: int, dimension: int, classes: int) -> float:
    """Return the median seconds of an `owttt` batch that are spent in no pass of the network, forward or backward."""
    torch.manual_seed(0)
    model, vectors = Vectors(dimension, classes), torch.rand(4 * classes, dimension)
    source = owttt.SourceStats.fit(model, [(vectors, torch.arange(4 * classes) % classes)], classes, progress=False)
    adapter = owttt.wrap(model, "owttt", source=source, preset="paper", threshold=half, window=2 * batch, lr=0.0)
    x = torch.rand(batch, dimension) * torch.rand(batch, 1)
    return statistics.median([_outside_once(partial(adapter, x)) for _ in range(rounds + 1)][1:])


def _outside_once(work: Callable[[], object]) -> float:
    inside = 0.0

    def clocked(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            start = time.perf_counter()
            result = function(*args, **kwargs)
            inside += time.perf_counter() - start
            return result

        return call

    with (
        patch.object(FeatureExtractor, "forward", clocked(FeatureExtractor.forward)),
        patch.object(torch.autograd, "backward", clocked(torch.autograd.backward)),
    ):
        start = time.perf_counter()
        work()
        return time.perf_counter() - start - inside


def flat(rounds: int) -> dict[str, Any]:
    """Return the time per image of `owttt` in batches of 64 to 1,024, against batches of 256."""
    sizes = (64, 256, 1024)
    timed: dict[str, Work] = {}
    for size in sizes:
        made, *_ = works(Case("resnet20", (3, 32, 32), size))
        timed[str(size)] = made["owttt"]
    times = interleaved(timed, rounds)
    per_image = Times({name: [one / int(name) for one in seconds] for name, seconds in times.seconds.items()})
    return {str(size): per_image.ratio(str(size), "256") for size in sizes}


def long(images: int) -> dict[str, float]:
    """Show `owttt` a long stream of small images: time per batch at its end against its beginning, memory that grew."""
    case = Case("resnet20", (3, 8, 8), 256, width=4)
    model, x = case.model(), [case.images(seed) for seed in range(8)]
    source = owttt.SourceStats.fit(model, [(x[0], torch.arange(256) % 10)], 10, progress=False)
    adapter = owttt.wrap(model, "owttt", source=source, preset="paper", lr=1e-5)
    seconds: list[float] = []
    size = 0
    for number in range(images // 256):
        start = time.perf_counter()
        adapter(x[number % 8])
        seconds.append(time.perf_counter() - start)
        if number == images // 2560:
            size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tenth = len(seconds) // 10
    first, last = sorted(seconds[tenth : 2 * tenth])[tenth // 2], sorted(seconds[-tenth:])[tenth // 2]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size
    return {"images": images, "last tenth over second": last / first, "MiB grown after the first tenth": grown / 1024}


def table(name: str, found: dict[str, Any]) -> Table:
    """Return a case's ratios as a table."""

    def cell(ratio: dict[str, float] | None) -> str:
        return "–" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"

    shown = Table("", "/ one forward pass", "/ the passes it needs", "/ floor", title=name)
    for method in found["per forward"]:
        cells = (found[kind].get(method) for kind in ("per forward", "per own passes", "per floor"))
        shown.add_row(method, *map(cell, cells))
    shown.add_row("literal OWTTT", "", "", cell(found["per floor"]["literal"]))
    for title in (
        "literal over owttt",
        "literal over owttt, adapt then predict",
        "until answered, per forward",
    ):
        shown.add_row(title, cell(found[title]), "", "")
    shown.add_row("share of owttt outside the network's passes", f"{100 * found['outside the passes']:.1f} %", "", "")
    for kind, ratio in found["memory per floor"].items():
        shown.add_row(f"peak memory of {kind} / floor", f"{ratio:.2f}", "", "")
    return shown


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw what every method costs, in floors, per case."""
    with canvas(path, 1, (10, 0.5 + 0.9 * len(results))) as (axes,):
        names = [*owttt.METHODS, "literal"]
        for row, found in enumerate(results.values()):
            for place, name in enumerate(names):
                ratio = found["per floor"].get(name)
                if ratio is None:
                    continue
                color = "#444444" if name == "literal" else owttt.METHODS[name].color
                y = row + 0.8 * (place / len(names) - 0.45)
                axes.barh(y, ratio["median"], 0.09, color=color, label=name if row == 0 else None)
        axes.axvline(1, color="#8a9099", lw=0.8)
        axes.set(yticks=range(len(results)), yticklabels=list(results), xlabel="time per batch / floor")
        axes.invert_yaxis()
        axes.legend(frameon=False, fontsize=7, ncols=3)


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=USUAL, help=f"of {', '.join(CASES)}; or all (half an hour)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--long", type=int, default=LONG, help="images of the long stream")
    parser.add_argument("--out", type=Path, default=Path("out/speed"))
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    keep_freed_memory()
    console = Console()
    record: dict[str, Any] = {
        "machine": platform.machine(),
        "torch": torch.__version__,
        "threads": chosen.threads,
        "rounds": chosen.rounds,
        "cases": {},
    }
    for name in CASES if chosen.cases == "all" else filter(None, chosen.cases.split(",")):
        record["cases"][name] = measure(name, chosen.rounds)
        console.print(table(name, record["cases"][name]))
        write_json(chosen.out.with_suffix(".json"), record)
    record["parts: literal over ours"] = parts(chosen.rounds)
    record["per image, by batch size, against 256"] = flat(chosen.rounds)
    record["a long stream"] = long(chosen.long)
    for title in ("parts: literal over ours", "per image, by batch size, against 256", "a long stream"):
        console.print(title, record[title])
    write_json(chosen.out.with_suffix(".json"), record)
    draw(record["cases"], chosen.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
