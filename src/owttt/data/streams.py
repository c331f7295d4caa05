"""Streams: what a deployed classifier meets, one batch after the other, the same every time.

    for x, y in Stream(StreamSpec(known="cifar10", corruptions=("snow",), unknown=("mnist",))):
        ...

From the spec and the sets' sizes follows a plan, which sample comes when; batches are slices of the plan, so any batch
can be made without those before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from owttt.data import registry
from owttt.data.classes import align, without_known
from owttt.data.corruptions import corrupt, frost_from_folder, synthetic_frost
from owttt.data.dataset import Dataset, Frame
from owttt.data.plan import Ints, plan
from owttt.data.stream_spec import StreamSpec
from owttt.types import UNKNOWN


class Batch(NamedTuple):
    """Samples `(B, …)` in float32, images in 0 … 1, and labels `(B,)`: a known class or `UNKNOWN`."""

    x: Tensor
    y: Tensor


@final
class Stream:
    """Batches of a spec, for a model that takes images in a frame and knows classes in an order.

    Iterating yields all batches; `batches(start=k)` goes on where another run stopped. `known` and `unknown` may be
    given as data sets instead of being opened by name.
    """

    def __init__(
        self,
        spec: StreamSpec,
        *,
        frame: Frame | None = None,
        classes: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        root: str | Path | None = None,
        known: Dataset | None = None,
        unknown: Sequence[Dataset] | None = None,
    ) -> None:
        self.spec, self.frame = spec, frame
        self.ice = synthetic_frost if spec.frost is None else frost_from_folder(spec.frost)
        self.published = spec.known in registry.CORRUPTED
        opened = self._open_known(root) if known is None else [known]
        aligned = [align(dataset, classes, names) for dataset in opened] if classes else opened
        self.classes = tuple(classes or aligned[0].classes)
        parts = (
            [registry.load(name.partition("@")[0], root=root) for name in spec.unknown] if unknown is None else unknown
        )
        self.known = aligned
        self.unknown = [without_known(part, self.classes) for part in parts]
        sizes = [len(aligned[0]), *(len(part) for part in self.unknown)]
        self.plan = plan(spec, sizes, aligned[0].labels.numpy())

    def __len__(self) -> int:
        return math.ceil(len(self.plan) / self.spec.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the batches from number `start` on."""
        if not 0 <= start <= len(self):
            raise ValueError(f"The stream has batches 0 … {len(self) - 1}, got {start}.")
        return (self.batch(number) for number in range(start, len(self)))

    def batch(self, number: int) -> Batch:
        """Make one batch."""
        rows = np.arange(number * self.spec.batch_size, min((number + 1) * self.spec.batch_size, len(self.plan)))
        y = torch.full((len(rows),), UNKNOWN)
        x: Tensor | None = None
        for part, corruption in sorted({(int(self.plan.part[row]), int(self.plan.corruption[row])) for row in rows}):
            here = (self.plan.part[rows] == part) & (self.plan.corruption[rows] == corruption)
            index = self.plan.index[rows[here]]
            samples = self._samples(part, corruption, index)
            x = torch.empty(len(rows), *samples.shape[1:]) if x is None else x
            if samples.shape[1:] != x.shape[1:]:
                raise ValueError(
                    f"Samples of {tuple(samples.shape[1:])} and of {tuple(x.shape[1:])} cannot be in one stream; give "
                    "a frame to bring images to one size, and mix no clouds with images."
                )
            x[torch.from_numpy(here)] = samples
            if part == 0:
                y[torch.from_numpy(here)] = self.known[0].labels[torch.from_numpy(index)]
        assert x is not None
        return Batch(x, y)

    def _open_known(self, root: str | Path | None) -> list[Dataset]:
        spec = self.spec
        if not self.published:
            return [registry.load(spec.known, root=root)]
        if not spec.corruptions:
            raise ValueError(f"{spec.known} is corrupted: name at least one corruption, e.g. snow.")
        severity = spec.severity
        return [registry.load(spec.known, corruption=name, severity=severity, root=root) for name in spec.corruptions]

    def _samples(self, part: int, corruption: int, index: Ints) -> Tensor:
        """Return samples of one set under one corruption, as floats."""
        if part == 0:
            dataset = self.known[corruption if self.published else 0]
            name = "" if self.published or corruption < 0 else self.spec.corruptions[corruption]
        else:
            dataset = self.unknown[part - 1]
            name = self.spec.unknown[part - 1].partition("@")[2] if self.spec.unknown else ""
        samples = dataset.batch(torch.from_numpy(index), self.frame)
        if name:
            samples = corrupt(samples, name, self.spec.severity, indices=index.tolist(), frost=self.ice)
        return samples.float() / 255 if samples.dtype == torch.uint8 else samples.float()
