"""Words of the command line that become values."""

from __future__ import annotations

import argparse
import ast
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Final

WIDTH: Final = 80
"""Columns that help is written for."""


class Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Help as it is written, with the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        if isinstance(default, tuple) and default:
            return f"{action.help} (default: {','.join(map(str, default))})"
        empty = default is None or default is False or default in ((), [], argparse.SUPPRESS)
        return action.help if empty else super()._get_help_string(action)


def describe(parser: argparse.ArgumentParser, text: str, *examples: str) -> None:
    """Say what a command does, and show how it is used."""
    parser.description = textwrap.fill(text, WIDTH)
    lines = (textwrap.wrap(example, WIDTH - 6, break_on_hyphens=False) for example in examples)
    parser.epilog = "examples:\n" + "\n".join("  " + " \\\n      ".join(parts) for parts in lines)


def option(text: str) -> tuple[str, Any]:
    """Read `name=value`: true, false, none, another Python literal, or else a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"expected name=value, got {text!r}")
    plain = {"true": True, "false": False, "none": None}
    if value.lower() in plain:
        return name, plain[value.lower()]
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def threshold(text: str) -> str | float | tuple[float, float]:
    """Read a name, a number, or two numbers with a comma between them."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return text
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) != 2:
        raise argparse.ArgumentTypeError(f"expected a name, a number or low,high; got {text!r}")
    return numbers[0], numbers[1]


def words(text: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    return tuple(word for word in text.split(",") if word)


def numbers(text: str) -> tuple[int, ...]:
    """Read whole numbers with commas between them."""
    try:
        return tuple(map(int, words(text)))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers with commas, e.g. 0,1,2; got {text!r}") from None


def at_least_one(text: str) -> int:
    """Read a whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, at least 1; got {text!r}")
    return number


def writable(path: Path) -> Path:
    """Return a path after making sure that a file can be written there, before the work for it begins."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; --out names the file to write.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):
        return path
