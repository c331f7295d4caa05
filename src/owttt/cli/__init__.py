"""The command line: `owttt run`, `bench`, `report`, `train`, `data`, `list`, `sheet`."""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import sys
from collections.abc import Sequence

from rich.console import Console

from owttt._utils.allocator import keep_freed_memory
from owttt.cli import bench, data, listing, report, run, sheet, train


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors a user can mend are one red paragraph, not a traceback."""
    parser = argparse.ArgumentParser(
        prog="owttt", description='Classifiers that adapt to their stream and say "unknown".'
    )
    parser.add_argument("--version", action="version", version=f"owttt {importlib.metadata.version('owttt')}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for module in (run, bench, report, train, data, listing, sheet):
        module.add(commands)
    chosen = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    keep_freed_memory()
    try:
        chosen.command(chosen)
    except (ValueError, TypeError, IndexError, OSError, ImportError) as error:
        Console(stderr=True).print(f"owttt: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        Console(stderr=True).print("owttt: interrupted.", style="red")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
