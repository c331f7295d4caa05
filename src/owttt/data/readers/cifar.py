"""CIFAR-10 and CIFAR-100, the binary files of the University of Toronto (Krizhevsky, 2009)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from owttt.data.dataset import Array, ArrayImages
from owttt.data.readers.text import lines_of

PIXELS: Final = 3 * 32 * 32


def cifar10(root: Path, split: str) -> ArrayImages:
    """Open `cifar-10-batches-bin`: rows of one label byte and 3072 pixel bytes."""
    folder = root / "cifar-10-batches-bin"
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] if split == "train" else ["test_batch.bin"]
    return _open([folder / name for name in names], folder / "batches.meta.txt", labels=1)


def cifar100(root: Path, split: str) -> ArrayImages:
    """Open `cifar-100-binary`: rows of a coarse and a fine label byte and 3072 pixel bytes."""
    folder = root / "cifar-100-binary"
    return _open([folder / f"{split}.bin"], folder / "fine_label_names.txt", labels=2)


def _open(files: list[Path], names: Path, labels: int) -> ArrayImages:
    parts = [_rows(file, labels + PIXELS) for file in files]
    marks = np.concatenate([part[:, labels - 1] for part in parts])
    return ArrayImages(parts, marks, class_names(names), layout=lambda rows: rows[:, labels:].reshape(-1, 3, 32, 32))


def _rows(file: Path, width: int) -> Array:
    size = file.stat().st_size
    if not size or size % width:
        raise ValueError(f"{file}: {size} bytes, expected a multiple of {width}; the file is truncated or damaged.")
    return np.memmap(file, np.uint8, "r").reshape(-1, width)


def class_names(file: Path) -> list[str]:
    """Read a list of names, one a line."""
    return lines_of(file)
