"""A folder of results: one JSON per run, found again by what decided it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from owttt._utils.files import finite, remove_parts, write_json
from owttt.bench.records import FORMAT, RunRecord, whole_run
from owttt.bench.spec import RunSpec

ALGORITHM: Final = 1
"""Raised whenever a change of the library changes the numbers of a run."""
_FIRST_EMBEDDINGS: Final = "embeddings"
"""Where the first results had runs with an embedding."""


@final
@dataclass(frozen=True)
class Results:
    """Records by run. Two processes may share a folder: files appear whole, and a run is done under its lock."""

    folder: Path

    def path(self, spec: RunSpec) -> Path:
        """Return the file that a run is written to."""
        return self.folder / file_name(spec)

    def lock(self, spec: RunSpec) -> Path:
        """Return the file that whoever does a run holds; it stays, in a folder out of sight."""
        return self.folder / ".locks" / self.path(spec).with_suffix("").name

    def find(
        self, spec: RunSpec, fingerprints: dict[str, Any], source: str, threshold: str | None = None
    ) -> tuple[Path, RunRecord] | None:
        """Return a run's file and record, if it is there and was made with what a run now would be made with.

        That is: this model, data, algorithm and format; `source`, the fingerprint of the source statistics; and
        `threshold`, what an adapter tells of it, where it depends on more than the spec and that fingerprint.
        """
        for path in (self.path(spec), self._first_path(spec)):
            record = whole_run(path, "The run is made again.") if path else None
            told = (record.get("adapter") or {}) if record else {}
            if not path or not record or told.get("source", source) != source:
                continue
            if threshold is not None and told.get("threshold", threshold) != threshold:
                continue
            if (record.get("fingerprints"), record.get("format")) == (fingerprints, FORMAT):
                return path, record
        return None

    def write(self, spec: RunSpec, record: RunRecord) -> RunRecord:
        """Write a run's record, atomically, and return it as it will be read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_parts(self.folder)
        write_json(self.path(spec), dict(record))
        written: RunRecord = json.loads(json.dumps(finite(record)))
        return written

    def _first_path(self, spec: RunSpec) -> Path | None:
        """Return where the first version would have written a run."""
        if spec.first_digest is None:
            return None
        folder = self.folder / _FIRST_EMBEDDINGS if spec.embed else self.folder
        return folder / f"{spec.method}-{spec.first_digest[:16]}.json"


def file_name(spec: RunSpec) -> str:
    """Return the name of a run's file: its method to read, and a digest of all of it to tell it apart."""
    return f"{re.sub(r'[^a-zA-Z0-9_.+-]+', '-', spec.method)}-{spec.digest[:16]}.json"
