"""Lists of names in text files."""

from __future__ import annotations

from pathlib import Path

from owttt.data.dataset import existing


def lines_of(path: Path) -> list[str]:
    """Return the lines of a text file that are not empty, without spaces around; an error names the file."""
    try:
        text = existing(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text file ({error}).") from error
    return [line.strip() for line in text.splitlines() if line.strip()]
