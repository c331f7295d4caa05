"""Streams: what a deployed classifier meets, one batch after the other, the same every time.

    for x, y in Stream(StreamSpec(known="cifar10", corruptions=("snow",), unknown=("mnist",))):
        ...

From the spec and the sets' sizes follows a plan, which sample comes when; batches are slices of the plan, so any batch
can be made without those before it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from owttt._utils.tensors import digest
from owttt.data import registry
from owttt.data.classes import align, without_known
from owttt.data.corruptions.images import frost_from_folder, synthetic_frost
from owttt.data.dataset import Dataset
from owttt.data.modalities import Frame, Look, as_float, modality_of
from owttt.data.streams.plan import Ints, plan
from owttt.data.streams.spec import ALL, StreamSpec
from owttt.types import UNKNOWN

KEPT_BYTES: Final = 2**28
"""The largest stream whose batches are kept."""


class Batch(NamedTuple):
    """Samples `(B, …)` in float32, images in 0 … 1, and labels `(B,)`: a known class or `UNKNOWN`."""

    x: Tensor
    y: Tensor


@final
class Stream:
    """Batches of a spec, for a model that takes images in a frame and knows classes in an order.

    Iterating yields all batches; `batches(start=k)` goes on where another run stopped. `known` and `unknown` may be
    given as data sets instead of being opened by name. With `keep`, batches of a stream that fits into `KEPT_BYTES` are
    made once, for all methods that are shown it.
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
        keep: bool = False,
    ) -> None:
        self.spec, self.frame = spec, frame
        self._kept: dict[int, Batch] | None = {} if keep else None
        self.ice = synthetic_frost if spec.frost is None else frost_from_folder(spec.frost)
        self.published = known is None and spec.known in registry.CORRUPTED
        opened = self._open_known(root) if known is None else [known]
        self.known = [align(dataset, classes, names) for dataset in opened] if classes else opened
        if spec.corruptions == (ALL,):
            self.spec = replace(spec, corruptions=self.known[0].modality.common)
        self.classes = tuple(classes or self.known[0].classes)
        others = self.known[0].names if names is None else names
        parts = self._open_unknown(root) if unknown is None else list(unknown)
        self.unknown = [without_known(part, self.classes, others) for part in parts]
        self._check()
        sizes = [len(part) for part in (self.known[0], *self.unknown)]
        self.plan = plan(self.spec, sizes, self.known[0].labels.numpy())

    def _check(self) -> None:
        """Raise at once if batches could not be made."""
        spec = self.spec
        for name, dataset in zip(spec.corruptions, self.known, strict=False):
            if not torch.equal(dataset.labels, self.known[0].labels):
                raise ValueError(f"{spec.known}: {name} has other images than {spec.corruptions[0]}; it is incomplete.")
        if len(self.unknown) != len(spec.unknown):
            raise ValueError(f"The spec names {len(spec.unknown)} unknown sets, {len(self.unknown)} were given.")
        shapes = {spec.known: self._shape(spec.known, self.known[0], () if self.published else spec.corruptions)}
        for data, part in zip(spec.unknown_names, self.unknown, strict=True):
            shapes[str(data)] = self._shape(str(data), part, (data.corruption,) if data.corruption else ())
        if len(set(shapes.values())) > 1:
            raise ValueError(
                f"Samples of different shapes cannot be in one stream: {shapes}. Give a frame to bring images to one "
                "size, and mix no clouds with images."
            )

    def _shape(self, name: str, dataset: Dataset, corruptions: Sequence[str]) -> tuple[int, ...]:
        """Return the shape of a set's samples; raise if there are none, or if they cannot be corrupted."""
        if not len(dataset):
            raise ValueError(f"{name}: no samples are left of it once known and unknown classes are told apart.")
        sample = dataset.batch([0], self.frame)
        modality = modality_of(sample)
        if corruptions and not (modality.corruptible(sample) and set(corruptions) <= set(modality.corruptions)):
            raise ValueError(
                f"{name}: {', '.join(corruptions)} cannot be done to {sample.dtype} {tuple(sample.shape[1:])}: RGB "
                "images in uint8 and clouds (P, 3) in float have corruptions of their own. A frame makes gray images "
                "RGB."
            )
        return tuple(sample.shape[1:])

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the data sets it draws from, as the model gets them."""
        prints = [dataset.fingerprint(self.frame) for dataset in (*self.known, *self.unknown)]
        if self.spec.frost is not None and "frost" in self.spec.corruptions:
            prints.append(_content(Path(self.spec.frost)))
        return digest((), " ".join(prints))

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
        if not 0 <= number < len(self):
            raise ValueError(f"The stream has batches 0 … {len(self) - 1}, got {number}.")
        if self._kept is not None and number in self._kept:
            return self._kept[number]
        first = number * self.spec.batch_size
        made = self.at(np.arange(first, min(first + self.spec.batch_size, len(self.plan))))
        if self._kept is not None and made.x.nbytes * len(self) <= KEPT_BYTES:
            self._kept[number] = made
        return made

    def at(self, places: Ints) -> Batch:
        """Make the samples at some places of the stream."""
        parts, corruptions, indices = (
            field[places] for field in (self.plan.part, self.plan.corruption, self.plan.index)
        )
        y = torch.full((len(places),), UNKNOWN)
        known = torch.from_numpy(parts == 0)
        y[known] = self.known[0].labels[torch.from_numpy(indices)[known]]
        samples, groups = [], []
        for part, corruption in sorted(set(zip(parts.tolist(), corruptions.tolist(), strict=True))):
            here = np.flatnonzero((parts == part) & (corruptions == corruption))
            samples.append(self._samples(part, corruption, indices[here]))
            groups.append(here)
        order = torch.from_numpy(np.argsort(np.concatenate(groups)))
        return Batch(torch.cat(samples)[order], y)

    def _open_known(self, root: str | Path | None) -> list[Dataset]:
        spec = self.spec
        if not self.published:
            return [registry.load(spec.known, root=root)]
        if not spec.corruptions:
            raise ValueError(f"{spec.known} is corrupted: name at least one corruption, e.g. snow.")
        severity = spec.severity
        return [registry.load(spec.known, corruption=name, severity=severity, root=root) for name in spec.corruptions]

    def _open_unknown(self, root: str | Path | None) -> list[Dataset]:
        return [registry.load(name.plain, root=root) for name in self.spec.unknown_names]

    def picture(self, place: int) -> Tensor:
        """Draw the sample at a place of the stream, as the model gets it: an RGB image `(3, H, W)` in uint8."""
        x = self.at(np.array([place])).x
        part = int(self.plan.part[place])
        dataset = self.known[0] if part == 0 else self.unknown[part - 1]
        return modality_of(x).picture(x[0], dataset.upright)

    def _samples(self, part: int, corruption: int, index: Ints) -> Tensor:
        """Return samples of one set under one corruption, as floats."""
        if part == 0:
            dataset = self.known[corruption if self.published else 0]
            name = "" if self.published or corruption < 0 else self.spec.corruptions[corruption]
        else:
            dataset = self.unknown[part - 1]
            name = self.spec.unknown_names[part - 1].corruption
        chosen = torch.from_numpy(index)
        if not name:
            return as_float(dataset.batch(chosen, self.frame))
        modality = dataset.modality
        late = self.frame if modality.corrupted_first else None
        samples = dataset.batch(chosen, None if modality.corrupted_first else self.frame)
        look = Look(name, self.spec.severity, self.ice)
        corrupted = modality.corrupt(samples, look, dataset.numbers(chosen).tolist(), dataset.upright)
        return as_float(modality.framed(corrupted, late) if late else corrupted)


def _content(folder: Path) -> str:
    """Return the SHA-256 of a folder's files."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()
