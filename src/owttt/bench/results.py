"""A folder of results: one JSON a run, found again by what decided it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from owttt._utils.files import write_json
from owttt.bench.run import FORMAT
from owttt.bench.spec import RunSpec

ALGORITHM: Final = 1
"""Raised whenever a change of the library changes the numbers of a run."""


@final
@dataclass(frozen=True)
class Results:
    """Records by run. Two processes may share a folder: files appear whole, and a run is done under its lock."""

    folder: Path

    def path(self, spec: RunSpec) -> Path:
        """Return the file of a run."""
        return self.folder / file_name(spec)

    def read(self, spec: RunSpec, fingerprints: dict[str, Any]) -> dict[str, Any] | None:
        """Return a run's record if it is there and was made with this model, data, algorithm and format."""
        try:
            record: dict[str, Any] = json.loads(self.path(spec).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        same = record.get("fingerprints") == fingerprints and record.get("format") == FORMAT
        return record if same else None

    def write(self, spec: RunSpec, record: dict[str, Any], fingerprints: dict[str, Any]) -> dict[str, Any]:
        """Write a run's record, atomically, and return it as it will be read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.path(spec), {**record, "fingerprints": fingerprints})
        written: dict[str, Any] = json.loads(self.path(spec).read_text(encoding="utf-8"))
        return written


def file_name(spec: RunSpec) -> str:
    """Return the name of a run's file: its method to read, and a digest of all of it to tell it apart."""
    return f"{spec.method}-{spec.digest[:16]}.json"
