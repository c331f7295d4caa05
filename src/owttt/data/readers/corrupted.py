"""The published corrupted test sets: CIFAR-10-C, CIFAR-100-C (npy) and ImageNet-C (folders)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from owttt.data.dataset import Array, ArrayImages, Dataset, existing
from owttt.data.fetching.npm import CIFAR10_CLASSES
from owttt.data.readers.cifar import class_names
from owttt.data.readers.folders import image_tree


def cifar10_c(root: Path, corruption: str, severity: int) -> ArrayImages:
    """Open one corruption of CIFAR-10-C."""
    return _cifar_c(root / "CIFAR-10-C", corruption, severity, CIFAR10_CLASSES)


def cifar100_c(root: Path, corruption: str, severity: int) -> ArrayImages:
    """Open one corruption of CIFAR-100-C; names come from CIFAR-100 if that is there."""
    names = root / "cifar-100-binary" / "fine_label_names.txt"
    classes = class_names(names) if names.exists() else [str(number) for number in range(100)]
    return _cifar_c(root / "CIFAR-100-C", corruption, severity, classes)


def imagenet_c(root: Path, corruption: str, severity: int) -> Dataset:
    """Open `ImageNet-C/<corruption>/<severity>/<wnid>/*.JPEG`."""
    return image_tree(root / "ImageNet-C" / corruption / str(severity))


def read_npy(path: Path) -> Array:
    """Map an npy file into memory; a damaged one is a ValueError."""
    try:
        array: Array = np.load(existing(path), mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a whole npy file ({error}).") from error
    return array


def _cifar_c(folder: Path, corruption: str, severity: int, classes: Sequence[str]) -> ArrayImages:
    """Take one fifth of the file: severities 1 to 5 stand one behind the other."""
    images, labels = read_npy(folder / f"{corruption}.npy"), read_npy(folder / "labels.npy")
    count, rest = divmod(len(images), 5)
    if rest or images.shape[1:] != (32, 32, 3) or len(labels) != len(images):
        raise ValueError(
            f"{folder}: expected {corruption}.npy (5·N, 32, 32, 3) and as many labels, got {images.shape} and "
            f"{labels.shape}."
        )
    part = slice((severity - 1) * count, severity * count)
    return ArrayImages(images[part], labels[part], classes, layout=lambda rows: rows.transpose(0, 3, 1, 2))
