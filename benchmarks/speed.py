"""Speed as ratios measured in one run: against literal code, and against the network's own passes.

Seconds mean nothing on a shared machine; a ratio of two things timed alternately, median of several rounds, does.

    python benchmarks/speed.py [--rounds 7] [--batch 256] [--depth 26] [--json out/speed.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

import owttt
from owttt.functional import Gaussian, isolated_samples, otsu_threshold, symmetric_kl
from owttt.methods.alignment import GlobalAlignment
from owttt.models import cifar_resnet
from owttt.network.features import FeatureExtractor
from owttt.network.norm import moving_statistics

Work = Callable[[], object]


def medians(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Return the median seconds of each work, all of them timed in turn in every round."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def literal_threshold(scores: np.ndarray) -> float:
    """One hundred passes over the window."""
    best, least = np.inf, np.inf
    for tau in np.arange(100) / 100:
        above = scores >= tau
        share = above.mean()
        if 0 < share < 1:
            cost = (1 - share) * scores[~above].var() + share * scores[above].var()
            if cost < least:
                best, least = float(tau), cost
    return best


def threshold_ratio(rounds: int) -> float:
    """Window of 512: the literal loop over ours."""
    scores = torch.rand(512)
    array = scores.numpy()
    result = medians({"literal": lambda: literal_threshold(array), "ours": lambda: otsu_threshold(scores)}, 10 * rounds)
    return result["literal"] / result["ours"]


def literal_expansion(
    scores: Tensor, unit: Tensor, prototypes: Tensor, pool: Tensor, tau: float, split: float
) -> Tensor:
    """A product of the whole batch with the whole pool for every visited sample."""
    rest = scores.clone()
    while True:
        extended = 1 - (unit @ torch.cat((prototypes, pool)).T).amax(dim=1)
        index = int(rest.argmax())
        if rest[index] <= tau:
            return pool
        rest[index] = -torch.inf
        if extended[index] > split:
            pool = torch.cat((pool, unit[index : index + 1]))[-100:]


def expansion_ratio(rounds: int, dimension: int) -> float:
    """A batch of 128 strong samples: the literal expansion over ours."""
    unit, prototypes, pool = (F.normalize(torch.randn(n, dimension), dim=1) for n in (128, 10, 100))
    known = (unit @ prototypes.T).amax(dim=1)
    scores = 1 - known
    tau, split = torch.tensor(0.0), torch.tensor(0.5)
    result = medians(
        {
            "literal": lambda: literal_expansion(scores, unit, prototypes, pool, float(tau), float(split)),
            "ours": lambda: isolated_samples(scores, unit, known, pool, 100, tau, split),
        },
        rounds,
    )
    return result["literal"] / result["ours"]


def divergence_ratio(rounds: int, dimension: int) -> float:
    """Symmetric KL with gradient: factorising the source again over ours."""
    factor = torch.randn(dimension, dimension) / dimension**0.5
    source = Gaussian(torch.zeros(dimension), factor @ factor.T + torch.eye(dimension))
    inverse = source.covariance.inverse()
    mean, covariance = torch.ones(dimension) / 10, (source.covariance * 1.1).requires_grad_()

    def literal() -> Tensor:
        s, t = MultivariateNormal(source.mean, source.covariance), MultivariateNormal(mean, covariance)
        loss: Tensor = kl_divergence(s, t) + kl_divergence(t, s)
        return torch.autograd.grad(loss, covariance)[0]

    def ours() -> Tensor:
        return torch.autograd.grad(symmetric_kl(source, inverse, Gaussian(mean, covariance)), covariance)[0]

    result = medians({"literal": literal, "ours": ours}, rounds)
    return result["literal"] / result["ours"]


def half(scores: Tensor) -> Tensor:
    """Do the work of the adaptive threshold, then split the batch in the middle, so that every round does the same."""
    otsu_threshold(scores)
    return scores[-len(scores) // 2 :].median()


def floor(network: FeatureExtractor, x: Tensor) -> Work:
    """Return the passes OWTTT needs and nothing else: predict all, train on the kept half, train on the weak half."""
    network.requires_grad_(True)
    middle = len(x) // 2

    def passes() -> None:
        with torch.no_grad():
            network(x)
        torch.autograd.backward(network(x[:middle]).features.sum())
        with moving_statistics(network):
            features = network(x[middle:]).features
        torch.autograd.backward(features.sum())
        network.zero_grad()

    return passes


def adapters(rounds: int, batch: int, depth: int) -> dict[str, float]:
    """Time a batch of every method against a bare forward pass, and OWTTT against the passes it needs."""
    torch.manual_seed(0)
    model = cifar_resnet(depth).eval()
    data = torch.rand(batch, 3, 32, 32)
    source = owttt.SourceStats.fit(model, [(data, torch.arange(batch) % 10)], 10, progress=False)
    x = torch.rand(batch, 3, 32, 32) * torch.rand(batch, 1, 1, 1)
    works: dict[str, Work] = {
        "forward": torch.no_grad()(partial(model, x)),
        "floor": floor(owttt.wrap(model, source=source).method.network, x),
    }
    for name, method in owttt.METHODS.items():
        options: dict[str, Any] = {"lr": 0.0} if method.adapts else {}
        adapter = owttt.wrap(model, name, source=source, window=2 * batch, threshold=half, **options)
        works[name] = partial(adapter, x)
    works["alignment"] = alignment(source, batch // 2)
    shares = [outside_share(works["owttt"]) for _ in range(rounds + 1)][1:]
    times = medians(works, rounds)
    ratios = {f"{name} / one forward": times[name] / times["forward"] for name in owttt.METHODS}
    ratios["owttt / its bare passes"] = times["owttt"] / times["floor"]
    ratios["owttt, share of a batch outside the network's passes"] = statistics.median(shares)
    ratios["owttt, share of a batch for the Gaussians and their gradient"] = times["alignment"] / times["owttt"]
    return ratios


def alignment(source: owttt.SourceStats, number: int) -> Work:
    """Return the work of the running Gaussian, its distance and the distance's gradient, for so many features."""
    module = GlobalAlignment(source, 1280)
    features = (source.mean + torch.randn(number, len(source.mean)) / 10).requires_grad_()

    def work() -> None:
        torch.autograd.grad(module(features), features)

    return work


def outside_share(work: Work) -> float:
    """Return the share of a work's time that is spent neither in a network's forward pass nor in a backward pass."""
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
        return 1 - inside / (time.perf_counter() - start)


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--depth", type=int, default=26)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    ratios = {
        "threshold, window 512: literal loop / ours": threshold_ratio(chosen.rounds),
        "expansion, 128 strong, D 64: literal / ours": expansion_ratio(chosen.rounds, 64),
        "expansion, 128 strong, D 2048: literal / ours": expansion_ratio(chosen.rounds, 2048),
        "symmetric KL, D 64: torch.distributions / ours": divergence_ratio(10 * chosen.rounds, 64),
        "symmetric KL, D 512: torch.distributions / ours": divergence_ratio(chosen.rounds, 512),
        **adapters(chosen.rounds, chosen.batch, chosen.depth),
    }
    threads = torch.get_num_threads()
    title = f"ResNet-{chosen.depth}, batch {chosen.batch}, torch {torch.__version__}, {threads} threads"
    table = Table("what", "ratio", title=title)
    for name, value in ratios.items():
        table.add_row(name, f"{value:.3f}")
    Console().print(table)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        record = {"title": title, "machine": platform.machine(), "rounds": chosen.rounds, "ratios": ratios}
        chosen.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
