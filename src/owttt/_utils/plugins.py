"""What others bring: objects by `package.module:name`, and those that installed packages register.

Packages register methods, scores, data sets and models under the entry points `owttt.methods`, `owttt.scores`,
`owttt.datasets` and `owttt.models`. Names of either kind are strings, so that they travel in a run's JSON and to other
processes.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

Group = Literal["methods", "scores", "datasets", "models"]
_WITH_CODE: Final[tuple[Group, ...]] = ("methods", "scores")


def is_path(name: str) -> bool:
    """Whether a name says where to import something: `package.module:name`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


@cache
def registered(group: Group) -> dict[str, importlib.metadata.EntryPoint]:
    """Return what installed packages register, by name; nothing is imported."""
    return {point.name: point for point in importlib.metadata.entry_points(group=f"owttt.{group}")}


def find(name: str, group: Group) -> Any | None:
    """Return what a name stands for: an object to import, one that a package registers, or None if it is neither."""
    if is_path(name):
        return _imported(name)
    point = registered(group).get(name)
    return None if point is None else _loaded(name, point)


def source_digest(name: str) -> str:
    """Return the SHA-256 of the file that a method or score is written in: changed code gives other numbers."""
    found = next((thing for group in _WITH_CODE if (thing := find(name, group)) is not None), None)
    try:
        path = Path(inspect.getfile(getattr(found, "function", found)))  # type: ignore[arg-type]
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (TypeError, OSError):
        return ""


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{path}: {module} cannot be imported ({error}); is it installed, or in this folder?"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{path}: {module} has no {attribute}.")
        found = getattr(found, part)
    return found


def _loaded(name: str, point: importlib.metadata.EntryPoint) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name}: the package that registers it cannot be imported ({error}).") from error
