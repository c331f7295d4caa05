"""`owttt data`: what data there is, where it comes from, and fetching it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from owttt.cli.arguments import describe
from owttt.data.catalog import catalog, data_root
from owttt.data.fetching.fetch import get
from owttt.data.generated import GENERATED
from owttt.data.registry import find


def add(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    describe(
        parser,
        "What data there is, where it comes from, under which terms; and fetching it. It lives in the folder that "
        "OWTTT_DATA names.",
        "owttt data list",
        "owttt data get cifar10 mnist",
    )
    parts = parser.add_subparsers(required=True, metavar="list|get")
    parts.add_parser("list", help="what there is, from where, and what is present").set_defaults(command=show)
    getting = parts.add_parser("get", help="fetch data sets")
    getting.add_argument("names", nargs="+", metavar="NAME")
    getting.set_defaults(command=fetch)


def show(chosen: argparse.Namespace) -> None:
    """Print the catalog."""
    del chosen
    Console().print(catalog_table(data_root()))


def fetch(chosen: argparse.Namespace) -> None:
    """Fetch every set named; all are tried, and what failed is told at the end."""
    for name in chosen.names:
        find(name)
    console = Console(stderr=True)
    problems = []
    for name in chosen.names:
        try:
            get(name, tell=lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True))
        except OSError as error:
            problems.append(str(error))
    if problems:
        raise OSError("\n".join(problems))


def catalog_table(root: Path) -> Table:
    """Return all data sets, two lines each."""
    table = Table(
        title=f"Data sets, in {root}", caption="also npz:<path>, folder:<path>, h5:<path>: your own", box=None
    )
    for column in ("name", "MB", "present", "what"):
        table.add_column(column, justify="right" if column == "MB" else "left", no_wrap=column != "what")
    for name, entry in catalog().items():
        sources = (
            "from " + ", then ".join(_short(str(source)) for source in entry.sources) if entry.sources else "by hand"
        )
        present = "[green]yes[/]" if not entry.missing(root) else "no"
        table.add_row(name, f"{entry.megabytes:,}", present, entry.about)
        table.add_row("", "", "", f"[dim]{entry.license} · {sources}[/]")
    for name, generated in GENERATED.items():
        table.add_row(name, "0", "computed", generated.about)
    return table


def _short(source: str) -> str:
    """Return a source without the path of its address."""
    address, _, mirrors = source.partition(" (")
    host = address.partition("//")[2].partition("/")[0]
    return f"{host} ({mirrors}" if host and mirrors else host or source
