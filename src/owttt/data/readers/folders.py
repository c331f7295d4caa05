"""Images in folders: a folder a class, Tiny-ImageNet, ImageNet, ImageNet-R, VisDA-C, DTD, and anyone's."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from owttt.data.dataset import EncodedImages
from owttt.data.readers.text import lines_of

SUFFIXES: Final = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})
SPLITS: Final = {"train": ("train", "training"), "test": ("test", "val", "validation", "valid")}
VISDA_CLASSES: Final = (
    *("aeroplane", "bicycle", "bus", "car", "horse", "knife"),
    *("motorcycle", "person", "plant", "skateboard", "train", "truck"),
)


def image_tree(folder: Path) -> EncodedImages:
    """Open `<folder>/<class>/**/image`; a folder of images without classes is one class."""
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not classes:
        return _listed([(image, 0) for image in _images(folder)], [folder.name], folder)
    pairs = [(image, label) for label, path in enumerate(classes) for image in _images(path)]
    return _listed(pairs, [path.name for path in classes], folder)


def own_folder(folder: Path, split: str) -> EncodedImages:
    """Open anyone's folder; where it has a folder a split (train, test, val, …), the one asked for."""
    present = [name for names in SPLITS.values() for name in names if (folder / name).is_dir()]
    if not present:
        return image_tree(folder)
    wanted = next((name for name in SPLITS.get(split, (split,)) if name in present), None)
    if wanted is None:
        raise FileNotFoundError(errno.ENOENT, f"no such folder, only {', '.join(present)}", str(folder / split))
    return image_tree(folder / wanted)


def tiny_imagenet(root: Path, split: str) -> EncodedImages:
    """Open `tiny-imagenet-200`; its validation images are the test set, the test images have no labels."""
    folder = root / "tiny-imagenet-200"
    wnids = lines_of(folder / "wnids.txt")
    names = dict(_columns(folder / "words.txt", 2))
    number = {wnid: label for label, wnid in enumerate(wnids)}
    if split == "train":
        pairs = [(image, number[wnid]) for wnid in wnids for image in _images(folder / "train" / wnid)]
    else:
        rows = _columns(folder / "val" / "val_annotations.txt", 6)
        pairs = [(folder / "val" / "images" / row[0], _label(number, row[1], folder)) for row in rows]
    return _listed(pairs, wnids, folder, [names.get(wnid, wnid) for wnid in wnids])


def imagenet(root: Path, split: str) -> EncodedImages:
    """Open `imagenet/train` or `imagenet/val`, a folder a class, named by WordNet number."""
    return image_tree(root / "imagenet" / ("train" if split == "train" else "val"))


def imagenet_r(root: Path, split: str) -> EncodedImages:
    """Open ImageNet-R (Hendrycks et al., 2021): 200 of ImageNet's classes, by WordNet number; there is one split."""
    del split
    return image_tree(root / "imagenet-r")


def visda_c(root: Path, split: str) -> EncodedImages:
    """Open VisDA-C (Peng et al., 2017) by its image lists: renderings to train, photographs to test."""
    folder = root / "visda-c" / ("train" if split == "train" else "validation")
    lists = folder / "image_list.txt"
    pairs = [line.rsplit(maxsplit=1) for line in lines_of(lists)]
    if not all(len(pair) == 2 and pair[1].isdecimal() for pair in pairs):
        raise ValueError(f"{lists}: expected lines of a file name and the number of a class.")
    return _listed([(folder / name, int(label)) for name, label in pairs], VISDA_CLASSES, folder)


def dtd(root: Path, split: str) -> EncodedImages:
    """Open the Describable Textures (Cimpoi et al., 2014), first of the ten official partitions."""
    folder = root / "dtd"
    classes = sorted(path.name for path in (folder / "images").iterdir() if path.is_dir())
    number = {name: label for label, name in enumerate(classes)}
    names = lines_of(folder / "labels" / f"{split}1.txt")
    pairs = [(folder / "images" / name, _label(number, name.partition("/")[0], folder)) for name in names]
    return _listed(pairs, classes, folder)


def _images(folder: Path) -> Iterable[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )


def _label(numbers: Mapping[str, int], name: str, folder: Path) -> int:
    if name not in numbers:
        raise ValueError(f"{folder}: its lists name a class {name!r} that it has no folder of; it is incomplete.")
    return numbers[name]


def _columns(path: Path, count: int) -> list[list[str]]:
    rows = [line.split("\t") for line in lines_of(path)]
    if any(len(row) != count for row in rows):
        raise ValueError(f"{path}: expected lines of {count} columns, separated by tabs.")
    return rows


def _listed(
    pairs: Sequence[tuple[Path, int]], classes: Sequence[str], folder: Path, names: Sequence[str] | None = None
) -> EncodedImages:
    if not pairs:
        raise ValueError(f"{folder}: no images found ({', '.join(sorted(SUFFIXES))}).")
    paths = [path for path, _ in pairs]
    return EncodedImages(paths.__getitem__, np.array([label for _, label in pairs]), classes, names)
