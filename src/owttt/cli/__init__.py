"""The command line: `owttt run`, `bench`, `report`, `train`, `data`, `list`, `sheet`, `serve`, `triage`.

A command's module is imported when that command is asked for: `owttt --version` and `owttt --help` need nothing.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Final

from owttt import __version__
from owttt.cli.arguments import Help

COMMANDS: Final = {
    "run": ("run", "one or several methods on one stream"),
    "bench": ("bench", "a table or figure of the paper, or of your own"),
    "report": ("report", "results as a page"),
    "train": ("train", "train a source model"),
    "data": ("data", "list and fetch data sets"),
    "list": ("listing", "methods, models, corruptions and data by name"),
    "sheet": ("sheet", "look at the corruptions"),
    "serve": ("serve", "a service that adapts while it serves"),
    "triage": ("triage", "look at what was rejected, and export it"),
}
"""Command → its module, and what it is for."""
MENDABLE: Final = (ValueError, TypeError, LookupError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError)
"""Errors that are told in a sentence: what a user typed, what is not there, a run that diverges."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors are one red paragraph, not a traceback (which OWTTT_TRACEBACK=1 shows)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = _parser(next((word for word in words if not word.startswith("-")), "")).parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    from owttt._utils.allocator import keep_freed_memory  # noqa: PLC0415

    keep_freed_memory()
    try:
        chosen.command(chosen)
    except MENDABLE as error:
        if os.environ.get("OWTTT_TRACEBACK"):
            raise
        _tell(f"owttt: {error or type(error).__name__}")
        return 1
    except KeyboardInterrupt:
        _tell("owttt: interrupted.")
        return 130
    return 0


def _parser(command: str) -> argparse.ArgumentParser:
    """Return the parser; of the commands only the one that is asked for has its options."""
    parser = argparse.ArgumentParser(
        prog="owttt",
        description='Classifiers that adapt to their stream and say "unknown".',
        epilog="`owttt COMMAND --help` tells more, with examples.",
    )
    parser.add_argument("--version", action="version", version=f"owttt {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, (module, purpose) in COMMANDS.items():
        own = commands.add_parser(name, help=purpose, formatter_class=Help)
        if name == command:
            importlib.import_module(f"owttt.cli.{module}").add(own)
    return parser


def _tell(text: str) -> None:
    from rich.console import Console  # noqa: PLC0415

    Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
