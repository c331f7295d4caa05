"""Point clouds: ModelNet40 and ShapeNet-style h5, ModelNet40-C npy (in these y is upright), 3D-MNIST h5."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from owttt._utils.optional import require
from owttt.data.corruptions.clouds.points import evenly, in_unit_ball
from owttt.data.dataset import Array, ArrayImages, Dataset, existing, numbered
from owttt.data.readers.corrupted import read_npy
from owttt.data.readers.sizes import believable
from owttt.data.readers.text import lines_of


def modelnet40(root: Path, split: str) -> ArrayImages:
    """Open `modelnet40_ply_hdf5_2048`: the files that `train_files.txt` and `test_files.txt` name."""
    folder = root / "modelnet40_ply_hdf5_2048"
    names = lines_of(folder / f"{split}_files.txt")
    parts = [read_h5(folder / Path(name).name) for name in names]
    points, marks = zip(*parts, strict=True)
    labels = np.concatenate(marks)
    return ArrayImages(points, labels, _shape_names(folder, numbered(labels)), upright=1)


def modelnet40_c(root: Path, corruption: str, severity: int) -> ArrayImages:
    """Open one corruption of ModelNet40-C (Sun et al., 2022): `data_<corruption>_<severity>.npy` and `label.npy`."""
    folder = root / "modelnet40_c"
    points, labels = read_npy(folder / f"data_{corruption}_{severity}.npy"), read_npy(folder / "label.npy").ravel()
    names = _shape_names(root / "modelnet40_ply_hdf5_2048", numbered(np.arange(40)))
    return ArrayImages(points, labels, names, layout=lambda some: some[..., :3].astype(np.float32), upright=1)


def read_h5(path: Path) -> tuple[Array, Array]:
    """Read `data` `(N, P, 3)` and `label` `(N,)` or `(N, 1)`, as ModelNet40 and ShapeNet files have them."""
    h5py = require("h5py", "h5 files")
    existing(path)
    try:
        with h5py.File(path, "r") as file:
            points, labels = _values(file["data"], path).astype(np.float32), _values(file["label"], path).ravel()
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path}: not a whole h5 file with data and label ({error}).") from error
    if points.ndim != 3 or points.shape[2] < 3 or points.shape[1] <= 3:
        raise ValueError(f"{path}: data must be clouds (N, P, 3), more coordinates are left out; got {points.shape}.")
    return points[:, :, :3], labels


def h5_file(path: Path, split: str) -> ArrayImages:
    """Open one ShapeNet-style file, whatever split it is."""
    del split
    points, labels = read_h5(path)
    return ArrayImages(points, labels, numbered(labels), upright=1)


@final
class Digits3D(Dataset):
    """3D-MNIST (Castro, 2016): a group a digit, of `points` in any number; the same number of them is drawn of each."""

    def __init__(self, root: Path, split: str, points: int = 1024) -> None:
        self.path = existing(root / "3d-mnist" / f"{split}_point_clouds.h5")
        self.points = points
        h5py = require("h5py", "h5 files")
        try:
            with h5py.File(self.path, "r") as file:
                self.groups = sorted(file, key=int)
                labels = [int(file[group].attrs["label"]) for group in self.groups]
        except (OSError, KeyError, ValueError) as error:
            raise ValueError(f"{self.path}: not a whole 3D-MNIST file ({error}).") from error
        super().__init__(labels, [str(digit) for digit in range(10)])

    def sample(self, index: int) -> Tensor:
        """Return a cloud, centered in the unit ball; which points it has depends on its number only."""
        h5py = require("h5py", "h5 files")
        with h5py.File(self.path, "r") as file:
            points = _values(file[self.groups[index]]["points"], self.path)
            cloud: Tensor = torch.from_numpy(points.astype(np.float32))
        generator = torch.Generator().manual_seed(int(index))
        return in_unit_ball(cloud[evenly(len(cloud), self.points, generator)][None])[0]


def _values(stored: Any, path: Path) -> Array:
    """Return what a data set of an h5 file holds."""
    if not hasattr(stored, "nbytes"):
        raise ValueError("a group where an array is expected")
    if stored.is_virtual:
        raise ValueError("an array that refers to other files; copy it into one")
    believable(stored.nbytes, stored.id.get_storage_size(), path)
    values: Array = stored[:]
    return values


def _shape_names(folder: Path, numbers: list[str]) -> list[str]:
    """Return the published names if they are there, or else numbers."""
    path = folder / "shape_names.txt"
    names = lines_of(path) if path.exists() else []
    return names if len(names) >= len(numbers) else numbers
