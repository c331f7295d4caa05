"""`owttt list`: methods, models, corruptions and data by name."""

from __future__ import annotations

import argparse
import inspect

from rich.console import Console
from rich.table import Table

from owttt import models
from owttt._utils import plugins
from owttt.cli.arguments import describe
from owttt.data.catalog import catalog, data_root
from owttt.data.generated import GENERATED
from owttt.data.modalities import MODALITIES
from owttt.data.naming import PATH_FORMS
from owttt.detector import score_names
from owttt.methods import find_method, method_names
from owttt.models.package import CARD, read_card
from owttt.models.registry import WEIGHTS


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command."""
    describe(
        parser,
        "Methods, models, scores, corruptions and data by name, those of installed packages included.",
        "owttt list",
    )
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
    own = [f"{form}:<path>" for form in PATH_FORMS]
    for title, entries in (
        ("scores", score_names()),
        ("networks", [*models.NETWORKS, "timm:<name>"]),
        *((f"corruptions of {name}", list(modality.corruptions)) for name, modality in MODALITIES.items()),
        ("data here", [*here, *GENERATED, *plugins.registered("datasets"), *own]),
        ("data elsewhere", [*away, "(see `owttt data list`)"]),
        ("anybody's", ["package.module:name, as a method, score, model or data set"]),
    ):
        console.print(f"[bold]{title}[/]  {', '.join(entries)}", highlight=False)


def _methods() -> Table:
    table = Table(title="Methods", title_justify="left", box=None)
    table.add_column("name", no_wrap=True)
    table.add_column("what it does")
    for name in method_names():
        module = inspect.getmodule(find_method(name))
        table.add_row(name, (inspect.getdoc(module) or "").partition("\n")[0])
    return table


def _models() -> Table:
    table = Table(title="Models", title_justify="left", box=None)
    for column in ("name", "clean (%)", "corrupted (%)", "where"):
        table.add_column(column, justify="right" if "%" in column else "left", no_wrap=True)
    for name in models.names():
        card = WEIGHTS / name / CARD
        measured = read_card(card) if card.exists() else {}
        numbers = (f"{measured[key]:.1f}" if key in measured else "—" for key in ("clean", "corrupted_mean"))
        table.add_row(name, *numbers, _origin(name))
    return table


def _origin(name: str) -> str:
    if name in models.shipped():
        return "shipped"
    return "of another package" if name in plugins.registered("models") else "fetched on demand"
