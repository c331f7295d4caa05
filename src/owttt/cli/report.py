"""`owttt report`: a results folder as one page that opens from disk."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from owttt.bench.report import render
from owttt.cli.arguments import Commands, writable
from owttt.storage import write_bytes


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("report", help="results as a page", description=__doc__)
    parser.add_argument("results", type=Path, help="the folder that `owttt bench` wrote")
    parser.add_argument("-o", "--out", type=Path, default=Path("report.html"))
    parser.add_argument("--title", default="Open-world test-time training")
    parser.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Render and write."""
    path = writable(chosen.out)
    write_bytes(path, render(chosen.results, chosen.title).encode())
    Console().print(f"written to {path}", highlight=False, markup=False, soft_wrap=True)
