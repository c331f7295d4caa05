"""The methods, one per file. A new one is a file here and a line in `METHODS`."""

from __future__ import annotations

from typing import Final

from owttt._utils import plugins
from owttt._utils.suggest import suggest
from owttt.methods.base import Method
from owttt.methods.bn import BatchNorm
from owttt.methods.owttt import OWTTT
from owttt.methods.plus import Plus
from owttt.methods.shot import Shot
from owttt.methods.tent import Tent
from owttt.methods.test import Test
from owttt.methods.ttac import TTAC
from owttt.methods.ttt_plus_plus import TTTPlusPlus

METHODS: Final[dict[str, type[Method]]] = {
    method.name: method for method in (Test, BatchNorm, Tent, Shot, TTTPlusPlus, TTAC, OWTTT, Plus)
}

DEFAULT_METHOD: Final = "owttt+"
"""What `wrap` takes unless it is told otherwise."""


def method_names() -> list[str]:
    """Return the names of all methods, those of other packages included."""
    return [*METHODS, *plugins.registered("methods")]


def find_method(name: str) -> type[Method]:
    """Return a method's class: a name of `METHODS`, one that a package registers, or `package.module:Class`."""
    if name in METHODS:
        return METHODS[name]
    found = plugins.find(name, "methods")
    if found is None:
        raise ValueError(
            f"No method {name!r}. {suggest(name, method_names())} Or pass a Method, or package.module:Class."
        )
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise TypeError(f"{name}: expected a class derived from owttt.Method, got {found!r}.")
    return found


__all__ = [
    "DEFAULT_METHOD",
    "METHODS",
    "OWTTT",
    "TTAC",
    "BatchNorm",
    "Method",
    "Plus",
    "Shot",
    "TTTPlusPlus",
    "Tent",
    "Test",
    "find_method",
    "method_names",
]
