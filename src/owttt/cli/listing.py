"""`owttt list`: methods, models, corruptions and data by name."""

from __future__ import annotations

import argparse
import inspect

from rich.console import Console
from rich.table import Table

from owttt import models
from owttt.cli.arguments import Commands
from owttt.data.catalog import COMPUTED, catalog, data_root
from owttt.data.corruptions.clouds import CLOUD_CORRUPTIONS
from owttt.data.corruptions.images import COMMON, EXTRA
from owttt.methods import METHODS
from owttt.models.package import CARD, read_card


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("list", help="methods, models and data", description=__doc__)
    parser.set_defaults(command=show)


def show(chosen: argparse.Namespace) -> None:
    """Print all that has a name."""
    del chosen
    console = Console()
    console.print(_methods())
    console.print(_models())
    root = data_root()
    here = [name for name, entry in catalog().items() if not entry.missing(root)]
    away = [name for name in catalog() if name not in here]
    for title, entries in (
        ("networks", [*models.NETWORKS, "timm:<name>"]),
        ("corruptions of images", [*COMMON, *EXTRA]),
        ("corruptions of clouds", list(CLOUD_CORRUPTIONS)),
        ("data here", [*here, *COMPUTED, "npz:<path>", "folder:<path>", "h5:<path>"]),
        ("data elsewhere", [*away, "(see `owttt data list`)"]),
    ):
        console.print(f"[bold]{title}[/]  {', '.join(entries)}", highlight=False)


def _methods() -> Table:
    table = Table(title="Methods", title_justify="left", box=None)
    table.add_column("name", no_wrap=True)
    table.add_column("what it does")
    for name, method in METHODS.items():
        module = inspect.getmodule(method)
        table.add_row(name, (inspect.getdoc(module) or "").partition("\n")[0])
    return table


def _models() -> Table:
    table = Table(title="Models", title_justify="left", box=None)
    for column in ("name", "clean (%)", "corrupted (%)", "where"):
        table.add_column(column, justify="right" if "%" in column else "left", no_wrap=True)
    for name in models.names():
        card = models.WEIGHTS / name / CARD
        measured = read_card(card) if card.exists() else {}
        numbers = (f"{measured[key]:.1f}" if key in measured else "—" for key in ("clean", "corrupted_mean"))
        table.add_row(name, *numbers, "shipped" if name in models.shipped() else "fetched on demand")
    return table
