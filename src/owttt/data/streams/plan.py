"""The plan of a stream: which sample comes when, and under which corruption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from owttt.data.streams.spec import StreamSpec

Ints = NDArray[np.int64]

BURST_SHARE: Final = 0.8
"""Share of unknown samples inside a burst; outside there are none."""


@final
@dataclass(frozen=True)
class Plan:
    """Which sample comes when: arrays of one length.

    part        0 for the known set, 1 … for the unknown ones
    index       number of the sample in its set
    corruption  number in the spec's corruptions, −1 for none
    """

    part: Ints
    index: Ints
    corruption: Ints

    def __len__(self) -> int:
        return len(self.part)


def plan(spec: StreamSpec, sizes: Sequence[int], labels: Ints) -> Plan:
    """Draw which sample comes when; `sizes` are those of the known set and of the unknown ones."""
    generator = np.random.default_rng(spec.seed)
    known = _draw(generator, sizes[0], spec.num_samples or sizes[0], "known", repeat=False)
    count = round(spec.ratio * len(known)) if len(sizes) > 1 else 0
    shares = [len(part) for part in np.array_split(np.arange(count), max(len(sizes) - 1, 1))]
    unknown = [
        (part, index)
        for part, (size, share) in enumerate(zip(sizes[1:], shares, strict=False), start=1)
        for index in _draw(generator, size, share, spec.unknown[part - 1] if spec.unknown else "unknown", spec.repeat)
    ]
    if spec.dirichlet is not None:
        known = known[_correlated(generator, labels[known], spec.dirichlet, spec.batch_size)]
    total = len(known) + count
    where = _unknown_positions(generator, spec, total, count)
    part, index = np.zeros(total, np.int64), np.zeros(total, np.int64)
    corruption = np.full(total, -1, np.int64)
    index[~where] = known
    if count:
        order = generator.permutation(count)
        part[where], index[where] = np.array(unknown, np.int64)[order].T
    if spec.corruptions:
        corruption[~where] = _phases(generator, spec, np.flatnonzero(~where), total)
    return Plan(part, index, corruption)


def _draw(generator: np.random.Generator, size: int, count: int, name: str, repeat: bool) -> Ints:
    """Draw samples without replacement; with `repeat`, the whole set again and again."""
    if count > size and not (repeat and size):
        raise ValueError(
            f"The stream needs {count} samples of {name}, which has {size}; lower num_samples or ratio"
            + (", or set repeat." if name != "known" else ".")
        )
    rounds = [generator.permutation(size) for _ in range(max(1, -(-count // max(size, 1))))]
    return np.concatenate(rounds)[:count].astype(np.int64)


def _correlated(generator: np.random.Generator, labels: Ints, concentration: float, batch_size: int) -> Ints:
    """Return an order in which every class is spread over slots of one batch by a Dirichlet distribution."""
    slots = max(1, len(labels) // batch_size)
    keys = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        proportions = generator.dirichlet(np.full(slots, concentration))
        keys[members] = np.sort(generator.choice(slots, len(members), p=proportions))
    return np.lexsort((generator.random(len(labels)), keys)).astype(np.int64)


def _unknown_positions(generator: np.random.Generator, spec: StreamSpec, total: int, count: int) -> NDArray[np.bool_]:
    """Return where the unknown samples stand: `count` of `total` places, likelier where the share is high."""
    time = (np.arange(total) + 0.5) / max(total, 1)
    weights = {
        "constant": np.ones(total),
        "rising": time,
        "falling": 1 - time,
        "bursts": _bursts(total, spec.bursts, count).astype(float),
    }[spec.share]
    with np.errstate(divide="ignore"):
        keys = generator.exponential(size=total) / weights
    where = np.zeros(total, bool)
    where[np.argsort(keys, kind="stable")[:count]] = True
    return where


def _bursts(total: int, bursts: int, count: int) -> NDArray[np.bool_]:
    """Return which places are inside a burst: as many as `count` unknown samples need, at the start of each period."""
    period = total / bursts
    since = np.arange(total) % max(period, 1)
    return np.asarray(since < np.ceil(count / bursts / BURST_SHARE))


def _phases(generator: np.random.Generator, spec: StreamSpec, places: Ints, total: int) -> Ints:
    """Return the corruption of each known sample, by chance or by its place in the stream."""
    count = len(spec.corruptions)
    if spec.phases == "mixed":
        return generator.permutation(np.arange(len(places)) % count)
    rounds = spec.cycles if spec.phases == "recurring" else 1
    return (places * count * rounds // total % count).astype(np.int64)
