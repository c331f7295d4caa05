"""A data set: labels in memory, samples read when they are asked for."""

from __future__ import annotations

import errno
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from owttt._utils.tensors import digest
from owttt.data.modalities import Frame, Modality, modality_of

Array = NDArray[Any]

CACHE_BYTES: Final = 2**30
"""A framed set up to this size is kept in memory once read; a larger one is read again every time."""

FINGERPRINT_SAMPLES: Final = 16


class Dataset(ABC):
    """`labels` `(N,)` int64, identifiers and names of the classes, and samples by number.

    A sample is an image `(C, H, W)` in uint8, a cloud `(N, 3)` in float32, or an image in float32 where it has left
    the range of pixels (noise). Images of one set may differ in size; a `Frame` makes them equal.
    """

    upright: int = 2
    """Which axis of its clouds is vertical."""

    @cached_property
    def modality(self) -> Modality:
        """What its samples are: images or clouds."""
        return modality_of(self.sample(0)[None])

    def __init__(
        self, labels: Array | Tensor | Sequence[int], classes: Sequence[str], names: Sequence[str] | None = None
    ) -> None:
        self.labels = torch.as_tensor(np.asarray(labels).astype(np.int64))
        self.classes = tuple(classes)
        self.names = tuple(classes if names is None else names)
        if len(set(self.classes)) != len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise ValueError(f"Two classes are called {twice!r}; identifiers must differ.")
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise ValueError(
                f"Labels must be 0 … {len(self.classes) - 1} for {len(self.classes)} classes, "
                f"got {int(self.labels.min())} … {int(self.labels.max())}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def sample(self, index: int) -> Tensor:
        """Return one sample as it is stored."""

    def batch(self, indices: Sequence[int] | Tensor, frame: Frame | None = None) -> Tensor:
        """Return samples, framed if a frame is given; without one they must be of one size."""
        samples = [self.sample(int(index)) for index in indices]
        return torch.stack([frame(sample[None])[0] for sample in samples] if frame else samples)

    def fingerprint(self, frame: Frame | None = None) -> str:
        """Return the SHA-256 of the labels and of some samples, as they are framed."""
        some = np.linspace(0, len(self) - 1, min(len(self), FINGERPRINT_SAMPLES)).astype(np.int64)
        return digest([("labels", self.labels), ("samples", self.batch(torch.from_numpy(some), frame))])

    def subset(self, indices: Sequence[int] | Tensor) -> Dataset:
        """Return these samples as a data set."""
        kept = torch.as_tensor(indices, dtype=torch.long)
        return Subset(self, kept, self.labels[kept], self.classes, self.names)

    def numbers(self, indices: Sequence[int] | Tensor) -> Tensor:
        """Return the numbers that samples have in the whole set they come from."""
        return torch.as_tensor(indices, dtype=torch.long)

    def relabeled(self, table: Sequence[int], classes: Sequence[str], names: Sequence[str] | None = None) -> Dataset:
        """Return samples under other labels: `table` gives the new one of each class, negative to leave it out."""
        new = torch.tensor(table, dtype=torch.long)[self.labels]
        kept = (new >= 0).nonzero().flatten()
        return Subset(self, kept, new[kept], classes, names)

    def only(self, classes: Sequence[str]) -> Dataset:
        """Return the samples of these classes, their labels counted in this order."""
        number = {name: position for position, name in enumerate(classes)}
        names = dict(zip(self.classes, self.names, strict=True))
        table = [number.get(name, -1) for name in self.classes]
        return self.relabeled(table, classes, [names.get(name, name) for name in classes])

    def without(self, classes: Sequence[str]) -> Dataset:
        """Return the samples of all other classes, labels counted anew."""
        return self.only([name for name in self.classes if name not in set(classes)])

    def compact(self) -> Dataset:
        """Return all samples, labels counted over the classes that occur."""
        return self.only([self.classes[label] for label in torch.unique(self.labels).tolist()])


@final
class Subset(Dataset):
    """Some samples of a data set, in an order of their own, perhaps with labels of their own."""

    def __init__(
        self,
        parent: Dataset,
        indices: Tensor,
        labels: Tensor,
        classes: Sequence[str],
        names: Sequence[str] | None,
    ) -> None:
        super().__init__(labels, classes, names)
        self.parent = parent
        self.indices = indices
        self.upright = parent.upright

    def sample(self, index: int) -> Tensor:
        """Return the parent's sample."""
        return self.parent.sample(int(self.indices[index]))

    def batch(self, indices: Sequence[int] | Tensor, frame: Frame | None = None) -> Tensor:
        """Return the parent's samples."""
        return self.parent.batch(self.indices[torch.as_tensor(indices, dtype=torch.long)], frame)

    def numbers(self, indices: Sequence[int] | Tensor) -> Tensor:
        """Return the parent's numbers."""
        return self.parent.numbers(self.indices[torch.as_tensor(indices, dtype=torch.long)])


@final
class ArrayImages(Dataset):
    """Images or clouds in arrays (often memory maps) one behind the other, brought into place by `layout`."""

    def __init__(
        self,
        arrays: Array | Sequence[Array],
        labels: Array | Sequence[int],
        classes: Sequence[str],
        names: Sequence[str] | None = None,
        layout: Callable[[Array], Array] = lambda rows: rows,
        upright: int = 2,
    ) -> None:
        super().__init__(labels, classes, names)
        self.upright = upright
        self.arrays = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
        self.ends = np.cumsum([len(array) for array in self.arrays])
        self.layout = layout
        if self.ends[-1] != len(self.labels):
            raise ValueError(f"{self.ends[-1]} samples but {len(self.labels)} labels.")

    def sample(self, index: int) -> Tensor:
        """Return one row."""
        return self.batch([index])[0]

    def batch(self, indices: Sequence[int] | Tensor, frame: Frame | None = None) -> Tensor:
        """Return rows, read in one go."""
        rows = torch.from_numpy(np.ascontiguousarray(self.layout(self._rows(np.asarray(indices, np.int64)))))
        return frame(rows) if frame else rows

    def _rows(self, indices: NDArray[np.int64]) -> Array:
        if len(self.arrays) == 1:
            return self.arrays[0][indices]
        part = np.searchsorted(self.ends, indices, side="right")
        starts = np.concatenate([[0], self.ends[:-1]])
        rows = np.empty((len(indices), *self.arrays[0].shape[1:]), self.arrays[0].dtype)
        for number in np.unique(part):
            here = part == number
            rows[here] = self.arrays[number][indices[here] - starts[number]]
        return rows


@final
class EncodedImages(Dataset):
    """Images in files or in memory, decoded when they are asked for."""

    def __init__(
        self,
        encoded: Callable[[int], bytes | Path],
        labels: Array | Sequence[int],
        classes: Sequence[str],
        names: Sequence[str] | None = None,
        origin: str = "",
    ) -> None:
        super().__init__(labels, classes, names)
        self.encoded = encoded
        self.origin = origin

    def sample(self, index: int) -> Tensor:
        """Decode one image as RGB."""
        number = range(len(self))[index]
        encoded = self.encoded(number)
        return decode(encoded, f"{self.origin}, image {number}" if isinstance(encoded, bytes) else str(encoded))


@final
class Framed(Dataset):
    """A data set seen through a frame, kept in memory once read if it fits."""

    def __init__(self, parent: Dataset, frame: Frame, *, limit: int = CACHE_BYTES) -> None:
        super().__init__(parent.labels, parent.classes, parent.names)
        self.parent, self.frame, self.limit = parent, frame, limit
        self.upright = parent.upright
        self.kept: Tensor | None = None
        self.present = torch.zeros(len(parent), dtype=torch.bool)

    def sample(self, index: int) -> Tensor:
        """Return one framed sample."""
        return self.batch([index])[0]

    def batch(self, indices: Sequence[int] | Tensor, frame: Frame | None = None) -> Tensor:
        """Return framed samples, from memory where they are there."""
        wanted = torch.as_tensor(indices, dtype=torch.long)
        missing, place = torch.unique(wanted[~self.present[wanted]], return_inverse=True)
        if len(missing):
            read = self.parent.batch(missing, self.frame)
            if self.kept is None and read[0].nbytes * len(self) > self.limit:
                return frame(read[place]) if frame else read[place]
            if self.kept is None:
                self.kept = torch.empty(len(self), *read.shape[1:], dtype=read.dtype)
            self.kept[missing] = read
            self.present[missing] = True
        if self.kept is None:
            return self.parent.batch(wanted, self.frame)
        return frame(self.kept[wanted]) if frame else self.kept[wanted]

    def numbers(self, indices: Sequence[int] | Tensor) -> Tensor:
        """Return the parent's numbers."""
        return self.parent.numbers(indices)


def decode(encoded: bytes | Path, name: str) -> Tensor:
    """Return an encoded image as RGB `(3, H, W)` in uint8; a damaged one is a ValueError that names it."""
    try:
        with Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded) as image:
            deep = image.mode.startswith("I;16")
            plain = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)) if deep else image
            pixels = np.asarray(plain.convert("RGB"))
    except (OSError, UnidentifiedImageError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name}: not a readable image ({error}).") from error
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def numbered(labels: Array) -> list[str]:
    """Return names for classes that have none: their numbers."""
    return [str(number) for number in range(max(np.asarray(labels).astype(np.int64).tolist(), default=-1) + 1)]


def existing(path: Path) -> Path:
    """Return the path of a file that is there; FileNotFoundError names it if not."""
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return path
