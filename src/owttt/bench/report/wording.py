"""Texts of the page: nothing in them tells of the machine that the results were made on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from owttt.bench.records import Number

_PART: Final = r"""[^\\/"':;,\n]+"""
_PATH: Final = re.compile(rf"((?:\w\w+:)?)(?:[A-Za-z]:)?[\\/](?:{_PART}[\\/])+({_PART})?")
"""A text that is a path and nothing else, perhaps behind a form of data: it may hold spaces."""
_FOLDERS: Final = re.compile(r"""(?:\b[A-Za-z]:)?[\\/](?:[^\\/\s"':;,]+[\\/])+""")


def plain(text: str) -> str:
    """Return a text without the folders of the machine it was written on: of a path the last part."""
    path = _PATH.fullmatch(text)
    return f"{path[1]}{path[2] or ''}" if path else _FOLDERS.sub("", text)


def without_folders(value: Any) -> Any:
    """Return what JSON holds with every text in it `plain`."""
    if isinstance(value, Mapping):
        return {plain(key): without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    return plain(value) if isinstance(value, str) else value


def percent(share: Number) -> str:
    """Return a share in percent."""
    return "—" if share is None else f"{100 * share:.1f}"


def signed(points: float) -> str:
    """Return a difference with its sign."""
    return f"{points:+.1f}".replace("-", "−")


def anchor(name: str) -> str:
    """Return a name as a place of the page that links lead to."""
    return f"table-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}"
