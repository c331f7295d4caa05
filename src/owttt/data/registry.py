"""Every data set by name: `load` opens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from owttt._utils.suggest import suggest
from owttt.data.catalog import data_root, find
from owttt.data.corruptions.clouds import CLOUD_CORRUPTIONS
from owttt.data.corruptions.images import CORRUPTIONS
from owttt.data.dataset import Dataset
from owttt.data.generated.noise import NOISE, Noise
from owttt.data.generated.solids import Solids
from owttt.data.readers import cifar, clouds, corrupted, folders, mnist, npz, svhn
from owttt.data.readers.voxels import DigitClouds

OPENERS: Final[dict[str, Callable[[Path, str], Dataset]]] = {
    "cifar10": cifar.cifar10,
    "cifar100": cifar.cifar100,
    "mnist": mnist.mnist,
    "fashion-mnist": mnist.fashion_mnist,
    "svhn": svhn.svhn,
    "tiny-imagenet": folders.tiny_imagenet,
    "imagenet": folders.imagenet,
    "imagenet-r": folders.imagenet_r,
    "visda-c": folders.visda_c,
    "dtd": folders.dtd,
    "modelnet40": clouds.modelnet40,
    "3d-mnist": clouds.Digits3D,
}
DERIVED: Final[dict[str, tuple[str, Callable[[Dataset], Dataset]]]] = {"mnist-clouds": ("mnist", DigitClouds)}
"""Name → the set it is made of, and how."""
CORRUPTED: Final[dict[str, Callable[[Path, str, int], Dataset]]] = {
    "cifar10-c": corrupted.cifar10_c,
    "cifar100-c": corrupted.cifar100_c,
    "imagenet-c": corrupted.imagenet_c,
    "modelnet40-c": clouds.modelnet40_c,
}
CLOUDS: Final = frozenset({"modelnet40", "modelnet40-c", "3d-mnist", "mnist-clouds", "solids"})
PATHS: Final[dict[str, Callable[[Path, str], Dataset]]] = {
    "npz": npz.npz,
    "folder": folders.own_folder,
    "h5": clouds.h5_file,
}


def load(
    name: str,
    split: str = "test",
    *,
    corruption: str | None = None,
    severity: int | None = None,
    root: str | Path | None = None,
) -> Dataset:
    """Open a data set: a name of `names()`, `npz:<path>`, `folder:<path>` or `h5:<path>`.

    A relative path that is not in the working folder is looked for in the data root, so that the name of a data set is
    the same on every machine.

    `corruption` and `severity` choose a part of the published corrupted sets (`cifar10-c`, …) and are for them only.
    """
    form, _, path = name.partition(":")
    if name not in CORRUPTED and corruption is not None:
        raise ValueError(
            f"{name} is not a corrupted set; leave corruption out, or choose one of {', '.join(CORRUPTED)}."
        )
    if path and form in PATHS:
        return _open_path(form, _found(Path(path).expanduser(), root), split)
    if name in NOISE:
        return Noise(name)
    if name == "solids":
        return Solids()
    if name in DERIVED:
        origin, make = DERIVED[name]
        return make(load(origin, split, root=root))
    entry = find(name)
    if split not in entry.splits:
        raise ValueError(f"{name} has no split {split!r}; choose one of {list(entry.splits)}.")
    place = data_root() if root is None else Path(root)
    try:
        if name in OPENERS:
            return OPENERS[name](place, split)
        return CORRUPTED[name](place, *_checked(name, corruption, severity))
    except FileNotFoundError as error:
        file = error.filename or (entry.missing(place) or [place])[0]
        raise FileNotFoundError(f"{file}: no such file. {entry.advice(place)}") from error


def corruptions_of(name: str) -> tuple[str, ...]:
    """Return the corruptions that a set has (published) or can be given (others)."""
    if name in CLOUDS or name.startswith("h5:"):
        return CLOUD_CORRUPTIONS
    return (*CORRUPTIONS, *CLOUD_CORRUPTIONS) if of_either_kind(name) else tuple(CORRUPTIONS)


def of_either_kind(name: str) -> bool:
    """Whether a name does not tell if a set is of images or of clouds."""
    return name.startswith("npz:")


def _checked(name: str, corruption: str | None, severity: int | None) -> tuple[str, int]:
    if corruption is None or severity is None or severity not in range(1, 6):
        raise ValueError(f"{name} needs a corruption and a severity from 1 to 5, got {corruption} and {severity}.")
    if corruption not in corruptions_of(name):
        raise ValueError(f"{name} has no corruption {corruption!r}. {suggest(corruption, corruptions_of(name))}")
    return corruption, severity


def _found(path: Path, root: str | Path | None) -> Path:
    """Return a path as it is, or in the data root if it is only there."""
    there = (data_root() if root is None else Path(root)) / path
    return there if not path.exists() and there.exists() else path


def _open_path(form: str, path: Path, split: str) -> Dataset:
    try:
        return PATHS[form](path, split)
    except FileNotFoundError as error:
        reason = error.strerror or "no such file"
        raise FileNotFoundError(
            f"{error.filename or path}: {reason.lower()}; {form}:<path> opens your own data."
        ) from error
