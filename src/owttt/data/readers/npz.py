"""Anyone's arrays: an npz file with `x` and `y`, or with encoded images `buf`/`offsets` and `y`.

`x` is `(N, H, W)`, `(N, H, W, C)` or `(N, C, H, W)` in uint8, clouds `(N, P, 3)` in float, or solid shapes as voxels
`(N, D, D, D)` in uint8, which become clouds of their surface. `buf` holds JPEG or PNG files back to back: image i is
`buf[offsets[i]:offsets[i + 1]]`. Splits have keys with the split's name behind: `x_train`, `y_train`.
Optional: `names` of the classes, `wnids` as their identifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from owttt.data.dataset import Array, ArrayImages, Dataset, EncodedImages, existing, numbered
from owttt.data.readers.sizes import UNREADABLE, check_npz
from owttt.data.readers.voxels import VoxelClouds


def npz(path: Path, split: str) -> Dataset:
    """Open an npz file."""
    existing(path)
    try:
        check_npz(path)
        with np.load(path, allow_pickle=False) as file:
            keys = {key: _key(file, key, split) for key in ("x", "y", "buf", "offsets", "names", "wnids")}
            arrays = {key: file[name] for key, name in keys.items() if name is not None}
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: not a readable npz file without pickles ({type(error).__name__}: {error})."
        ) from error
    return from_arrays(arrays, str(path))


def from_arrays(arrays: Mapping[str, Array], path: str) -> Dataset:
    """Make a data set of arrays by name; `path` says in errors where they came from."""
    if "y" not in arrays or not ({"x"} <= arrays.keys() or {"buf", "offsets"} <= arrays.keys()):
        raise ValueError(f"{path}: expected arrays x and y, or buf, offsets and y; found {sorted(arrays)}.")
    labels = _labels(arrays["y"], path)
    names = [str(name) for name in arrays.get("names", numbered(labels))]
    classes = [str(name) for name in arrays.get("wnids", _distinct(names))]
    if "buf" in arrays:
        images = _slices(arrays["buf"], arrays["offsets"], len(labels), path)
        return EncodedImages(images, labels, classes, names, origin=path)
    if _are_voxels(arrays["x"]):
        return VoxelClouds(arrays["x"], labels, classes, names)
    return ArrayImages(_channels_first(arrays["x"], path), labels, classes, names)


def _are_voxels(x: Array) -> bool:
    """Whether an array is of cubes, and none so small that it could be images of four channels."""
    return x.ndim == 4 and x.dtype in (np.uint8, np.bool_) and len({*x.shape[1:]}) == 1 and x.shape[1] > 4


def _labels(y: Array, path: str) -> Array:
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"{path}: y must be whole numbers (N,), got {y.dtype} {y.shape}.")
    return y


def _distinct(names: list[str]) -> list[str]:
    """Number names apart that occur more than once: crane, crane 2."""
    return [
        name if name not in names[:place] else f"{name} {names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


def _key(file: Mapping[str, Array], key: str, split: str) -> str | None:
    return next((name for name in (f"{key}_{split}", key) if name in file), None)


def _slices(buffer: Array, offsets: Array, count: int, path: str) -> Callable[[int], bytes]:
    if len(offsets) != count + 1:
        raise ValueError(f"{path}: {count} labels need {count + 1} offsets, got {len(offsets)}.")
    if offsets[0] < 0 or offsets[-1] > len(buffer) or (np.diff(offsets) < 0).any():
        raise ValueError(f"{path}: offsets must rise from 0 to at most {len(buffer)}, the length of buf.")
    return lambda index: buffer[offsets[index] : offsets[index + 1]].tobytes()


def _channels_first(x: Array, path: str) -> Array:
    """Return images as `(N, C, H, W)` and clouds as they are."""
    if x.ndim == 3 and x.shape[2] == 3 and x.dtype.kind == "f":
        return x.astype(np.float32, copy=False)
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        raise ValueError(f"{path}: x must be images in uint8 or clouds (N, P, 3) in float, got {x.dtype} {x.shape}.")
    if x.ndim == 3:
        return x[:, None]
    images = x if x.shape[1] in (1, 3) and x.shape[3] not in (1, 3) else x.transpose(0, 3, 1, 2)
    if images.shape[1] not in (1, 3):
        raise ValueError(f"{path}: images must have 1 or 3 channels, first or last; x is {x.shape}.")
    return images
