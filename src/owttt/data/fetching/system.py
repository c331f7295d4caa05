"""Data sets that the operating system's packages bring."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final


@final
@dataclass(frozen=True)
class SystemFolder:
    """A folder with the official files, plain or gzipped."""

    folder: Path
    files: tuple[str, ...]
    """Where they go below the data root."""
    unverified: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"the system's {self.folder}"

    def fetch(self, target: Path, work: Path) -> None:
        """Copy the files below `target`."""
        if not self.folder.is_dir():
            raise OSError(f"{self.folder}: no such folder")
        for file in self.files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            plain = self.folder / Path(file).name
            if plain.exists():
                shutil.copy(plain, target / file)
                continue
            with gzip.open(plain.with_name(f"{plain.name}.gz")) as packed, (target / file).open("wb") as copy:
                shutil.copyfileobj(packed, copy)
