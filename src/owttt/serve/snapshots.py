"""The last states of a stream on disk: written whole, kept in a ring, gone back to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, final

from owttt._utils.files import remove_parts
from owttt.adapter import Adapter

_NAME: Final = re.compile(r"(\d{12})\.safetensors")


@final
class Snapshots:
    """Files named by how many batches the stream had learned from."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep
        folder.mkdir(parents=True, exist_ok=True)
        remove_parts(folder)
        self.known = self.generations()
        """What there was when it was last looked at."""

    def generations(self) -> list[int]:
        """Return what there is, oldest first."""
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def write(self, adapter: Adapter, generation: int) -> None:
        """Save a state, and let the oldest go."""
        adapter.save(self._path(generation))
        for old in self.generations()[: -self.keep]:
            self._path(old).unlink(missing_ok=True)
        self.known = self.generations()

    def restore(self, adapter: Adapter, before: int | None = None) -> tuple[int, list[str]] | None:
        """Go back to the last state, or to the last one before a generation; damaged files are passed over.

        Returns:
            The generation gone back to, and what was wrong with later files; None if there is no state at all.

        Raises:
            ValueError: States are there, and none fits this adapter.
        """
        wrong: list[str] = []
        candidates = [number for number in reversed(self.generations()) if before is None or number < before]
        for generation in candidates:
            try:
                adapter.restore(self._path(generation))
            except (ValueError, OSError) as error:
                wrong.append(f"{self._path(generation).name}: {error}")
                continue
            return generation, wrong
        if wrong:
            raise ValueError(
                f"None of {len(wrong)} states in {self.folder} can be resumed from; move the folder away, or serve as "
                f"before. {wrong[0]}"
            )
        return None

    def drop_after(self, generation: int) -> None:
        """Forget the states after one that was gone back to."""
        for number in self.generations():
            if number > generation:
                self._path(number).unlink(missing_ok=True)
        self.known = self.generations()

    def _path(self, generation: int) -> Path:
        return self.folder / f"{generation:012d}.safetensors"
