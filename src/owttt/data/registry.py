"""Every data set by name: `load` opens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from owttt._utils import plugins
from owttt._utils.suggest import suggest
from owttt.data.catalog import Entry, catalog, data_root
from owttt.data.dataset import Dataset
from owttt.data.generated import GENERATED
from owttt.data.modalities import MODALITIES
from owttt.data.naming import FUNCTION, DataName
from owttt.data.readers import cifar, clouds, corrupted, folders, mnist, npz, svhn

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
CORRUPTED: Final[dict[str, Callable[[Path, str, int], Dataset]]] = {
    "cifar10-c": corrupted.cifar10_c,
    "cifar100-c": corrupted.cifar100_c,
    "imagenet-c": corrupted.imagenet_c,
    "modelnet40-c": clouds.modelnet40_c,
}
PATHS: Final[dict[str, Callable[[Path, str], Dataset]]] = {
    "npz": npz.npz,
    "folder": folders.own_folder,
    "h5": clouds.h5_file,
}
_KIND_OF_FORM: Final = {"folder": "images", "h5": "clouds"}
"""What one's own data is of, where its form tells: npz files and functions may be of either kind."""


def names() -> list[str]:
    """Return all names that `load` knows."""
    return [*catalog(), *GENERATED, *plugins.registered("datasets")]


def load(
    name: str,
    split: str = "test",
    *,
    corruption: str | None = None,
    severity: int | None = None,
    root: str | Path | None = None,
) -> Dataset:
    """Open a data set.

    A relative path that is not in the working folder is looked for in the data root, so that the name of a data set is
    the same on every machine.

    Args:
        name: One of `names()`; `npz:<path>`, `folder:<path>` or `h5:<path>`; or `package.module:function`, a function
            of the split that returns a `Dataset`, or arrays `(x, y)` as an npz file would hold them.
        split: "train" or "test".
        corruption: Which part of a published corrupted set (`cifar10-c`, …); for those only.
        severity: 1 to 5, likewise.
        root: The data root; `OWTTT_DATA` or the platform's cache by default.

    Returns:
        The data set; its samples are read when they are asked for.

    Raises:
        ValueError: There is no such set, split or corruption, or a file is damaged.
        FileNotFoundError: Its files are not here; the message says how to get them.
    """
    data = DataName.parse(name)
    if data.corruption:
        raise ValueError(
            f"{name}: a known set is named without its corruption; --corruption (a stream's `corruptions`) names that."
        )
    if name not in CORRUPTED and corruption is not None:
        raise ValueError(
            f"{name} is not a corrupted set; leave corruption out, or choose one of {', '.join(CORRUPTED)}."
        )
    if data.form in PATHS:
        return _open_path(data.form, _found(Path(data.path).expanduser(), root), split)
    if data.form == FUNCTION or name in plugins.registered("datasets"):
        return _from_function(name, split)
    if name in GENERATED:
        return GENERATED[name].make(split, lambda other, part: load(other, part, root=root))
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


def find(name: str) -> Entry:
    """Return a data set's entry in the catalog; an unknown name is an error with the nearest ones."""
    entry = catalog().get(name)
    if entry is not None:
        return entry
    if name in GENERATED:
        raise ValueError(f"{name} is computed and has no files to fetch.")
    raise ValueError(f"No data set {name!r}. {suggest(name, names())} npz:<path> and folder:<path> open your own.")


def corruptions_of(name: str) -> tuple[str, ...]:
    """Return the corruptions that a set has (published) or can be given (others), the common ones first."""
    kind = kind_of(name)
    if kind is not None:
        return MODALITIES[kind].corruptions
    return tuple(corruption for modality in MODALITIES.values() for corruption in modality.corruptions)


def common_corruptions_of(name: str) -> tuple[str, ...] | None:
    """Return the corruptions of the benchmarks for a set, None where its name does not tell what it is of."""
    kind = kind_of(name)
    return None if kind is None else MODALITIES[kind].common


def kind_of(name: str) -> str | None:
    """Return what a set is of, "images" or "clouds", or None where its name does not tell."""
    data = DataName.parse(name)
    if data.form:
        return _KIND_OF_FORM.get(data.form)
    if name in GENERATED:
        return GENERATED[name].modality.name
    entry = catalog().get(name)
    return None if entry is None and name in plugins.registered("datasets") else entry.kind if entry else "images"


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


def _from_function(name: str, split: str) -> Dataset:
    """Open somebody's data set."""
    function = plugins.find(name, "datasets")
    if function is None:
        raise ValueError(
            f"No data set {name!r}. One's own are npz:<path>, folder:<path>, h5:<path>, or package.module:function."
        )
    made: Any = function(split) if callable(function) else function
    if isinstance(made, Dataset):
        return made
    if isinstance(made, tuple) and len(made) == 2:
        x, y = (np.asarray(part) for part in made)
        return npz.from_arrays({"x": x, "y": y}, name)
    raise ValueError(
        f"{name}: expected an owttt.data.Dataset or arrays (x, y) for the split {split!r}, got {type(made).__name__}."
    )
