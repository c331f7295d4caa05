"""`owttt report`: a results folder as one page that opens from disk."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from rich.console import Console

from owttt._utils.files import write_bytes
from owttt.bench.records import read_tables
from owttt.bench.report import render
from owttt.bench.text import FORMATS
from owttt.cli.arguments import describe, words, writable

ENDINGS: Final = {"markdown": "md", "csv": "csv", "latex": "tex"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    describe(
        parser,
        "A results folder as one page that opens from disk: every table and figure, and runs that belong to none.",
        "owttt report results",
        "owttt report results -o page.html --gallery cifar10,mnist",
        "owttt report results --format markdown",
    )
    parser.add_argument("results", type=Path, help="the folder that `owttt run` and `owttt bench` wrote")
    parser.add_argument("-o", "--out", type=Path, help="the file to write; report.html by default")
    parser.add_argument("--title", default="Open-world test-time training", help="of the page")
    parser.add_argument(
        "--gallery",
        type=words,
        default=(),
        metavar="SETS",
        help="data sets whose pictures the page may show, with commas, or all; none by default",
    )
    parser.add_argument("--format", choices=("html", *FORMATS), default="html", help="a page, or its tables as text")
    parser.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Render and write."""
    if chosen.format == "html":
        path = writable(chosen.out or Path("report.html"))
        text = render(chosen.results, chosen.title, chosen.gallery)
    else:
        tables = [table for _, table in read_tables(chosen.results)]
        if not tables:
            raise FileNotFoundError(
                f"{chosen.results / 'tables'}: no table there; `owttt bench NAME --results {chosen.results}` makes one."
            )
        path = writable(chosen.out or Path(f"report.{ENDINGS[chosen.format]}"))
        text = FORMATS[chosen.format](tables)
    write_bytes(path, text.encode())
    Console().print(f"written to {path}", highlight=False, markup=False, soft_wrap=True)
