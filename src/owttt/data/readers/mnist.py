"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017): idx files, plain or gzipped."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from owttt.data.dataset import Array, ArrayImages, existing
from owttt.data.readers.sizes import believable, size_of

FASHION_CLASSES: Final = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def mnist(root: Path, split: str) -> ArrayImages:
    """Open the digits."""
    return _open(root / "mnist", split, [str(digit) for digit in range(10)])


def fashion_mnist(root: Path, split: str) -> ArrayImages:
    """Open the articles of clothing."""
    return _open(root / "fashion-mnist", split, FASHION_CLASSES)


def read_idx(file: Path) -> Array:
    """Read an array of bytes, mapped into memory; `file` may have `.gz` behind its name and is then read whole."""
    zipped = file.with_name(f"{file.name}.gz")
    path = existing(zipped if zipped.exists() and not file.exists() else file)
    try:
        content: Array = np.frombuffer(_unpacked(path), np.uint8) if path == zipped else np.memmap(path, np.uint8, "r")
        zeros, kind, dimensions = struct.unpack(">HBB", content[:4].tobytes())
        if zeros or kind != 8:
            raise ValueError("it does not begin as an idx file of bytes does")
        shape = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions].tobytes())
        return content[4 + 4 * dimensions :].reshape(shape)
    except (ValueError, IndexError, struct.error, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: not a whole idx file ({error}).") from error


def _unpacked(path: Path) -> bytes:
    """Return the bytes of a gzipped idx file, and no more of them than its shape asks for."""
    with gzip.open(path) as file:
        head = file.read(4)
        head += file.read(4 * head[3])
        wanted = size_of(struct.unpack(f">{head[3]}I", head[4:]))
        believable(wanted, path.stat().st_size, path)
        return head + file.read(wanted) + file.read(1)


def _open(folder: Path, split: str, classes: Sequence[str]) -> ArrayImages:
    prefix = "train" if split == "train" else "t10k"
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte")
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte")
    return ArrayImages(images, labels, classes, layout=lambda some: some[:, None])
