"""`owttt bench`: a table or figure of the paper on your data, the published numbers beside."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table as TerminalTable

from owttt import models
from owttt._utils.files import write_json
from owttt._utils.progress import duration, weighted
from owttt.bench import estimate
from owttt.bench.collect import collect
from owttt.bench.engine import Done, cost, execute
from owttt.bench.figures import draw
from owttt.bench.records import TableRecord, runs_of
from owttt.bench.selection import Selection
from owttt.bench.spec import RunSpec
from owttt.bench.tables import Table, find, paper, read
from owttt.bench.text import FORMATS, paper_table
from owttt.cli.arguments import at_least_one, describe, numbers, words, writable
from owttt.data.naming import DataName
from owttt.methods import find_method

Engine = Callable[[Sequence[RunSpec], Path], Iterator[Done]]
"""Does runs, and yields each as it is there."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    describe(
        parser,
        "A table or figure of the paper, or of a file of yours, on the data that is here. What is done is never "
        "redone: an interrupted table goes on where it stopped.",
        "owttt bench --list",
        "owttt bench table1 --scale 0.2 --corruptions snow,fog --jobs 2",
        "owttt bench table1 --methods test,owttt,my_package.methods:Mine --stand-in svhn=npz:svhn_test10k.npz",
        "owttt bench --file my.toml mytable --format markdown",
        "owttt bench table1 --engine ray --address 10.0.0.1:6379",
    )
    parser.add_argument("name", nargs="?", help="the table or figure; --list shows them")
    parser.add_argument("--list", action="store_true", help="what there is, how long it takes here, what it lacks")
    parser.add_argument("--file", type=Path, help="a TOML file with tables of yours, written like the paper's")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--scale", type=float, help="share of the paper's samples per run, e.g. 0.2")
    size.add_argument("--num-samples", "--number", dest="num_samples", type=at_least_one, help="known samples per run")
    parser.add_argument("--seeds", type=numbers, default=(0,), help="e.g. 0,1,2")
    parser.add_argument(
        "--methods",
        type=words,
        default=(),
        metavar="ROWS",
        help="some of the rows, with commas; any other method becomes a row of its own",
    )
    parser.add_argument("--columns", type=words, default=(), help="some of the columns, with commas")
    parser.add_argument("--corruptions", type=words, default=(), help="some of the corruptions, with commas")
    parser.add_argument("--model", help="another model")
    parser.add_argument("--weights", help="a file of weights for a model that a function makes")
    parser.add_argument("--batch-size", type=at_least_one, help="another than the paper's")
    parser.add_argument("--source", help="data set to fit source statistics on, if the model brings none")
    parser.add_argument(
        "--restrict",
        action=argparse.BooleanOptionalAction,
        help="only classes of the known set compete; as in the paper by default",
    )
    parser.add_argument(
        "--stand-in", action="append", default=[], metavar="NAME=DATA", help="use DATA in the place of NAME"
    )
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=DATA", help="one more column: DATA as the unknown set"
    )
    parser.add_argument("--format", choices=("table", *FORMATS), default="table", help="how it is printed")
    parser.add_argument("--resume", action="store_true", help="what it does anyway: what is done is never redone")
    parser.add_argument("--jobs", type=at_least_one, default=1, help="processes of the local engine")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="where runs are done")
    parser.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster; without one, Ray starts here")
    parser.add_argument("--cpus", type=at_least_one, default=1, help="cores that a run takes on a Ray node")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder; what is done is not redone")
    parser.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """List the tables, or run one and print it."""
    console = Console()
    tables = read(chosen.file) if chosen.file else paper()
    if chosen.list or chosen.name is None:
        console.print(_listing(tables))
        return
    selection = selection_of(chosen, find(chosen.name, tables))
    for name in selection.missing_data():
        note = f"{name} is not here: `owttt data get {name}`, or --stand-in {name}=DATA"
        Console(stderr=True).print(note, style="red", highlight=False, markup=False)
    done = run(selection, chosen.results, _engine(chosen))
    table = collect(selection, done)
    show(table, chosen.format, console)
    if any(one.record for one in done):
        write_json(writable(chosen.results / "tables" / f"{selection.name()}.json"), dict(table))
    if table["draw"] and (there := runs_of(table, chosen.results)):
        for path in draw(table, there, chosen.results / "figures", selection.name()):
            Console(stderr=True).print(f"written to {path}", highlight=False, markup=False, soft_wrap=True)
    failed = [one for one in done if one.error]
    if failed:
        reasons = sorted({done.error for done in failed})
        raise ValueError(f"{len(failed)} of {len(selection.specs())} runs failed:\n" + "\n".join(reasons))


def show(table: TableRecord, form: str, console: Console) -> None:
    """Print a table, on the terminal or as text for a paper."""
    if form in FORMATS:
        console.print(FORMATS[form]([table]), end="", highlight=False, markup=False, soft_wrap=True)
        return
    console.print(paper_table(table, console.width))
    for name, stand_in in table["stand_ins"].items():
        text = f"{DataName.parse(stand_in).short} stands in for {name}."
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def selection_of(chosen: argparse.Namespace, table: Table) -> Selection:
    """Return the table with the choices made about it."""
    if chosen.scale is not None and not 0 < chosen.scale <= 1:
        raise ValueError(f"--scale is a share above 0 and up to 1, got {chosen.scale}.")
    given = ("model", "weights", "source", "batch_size", "restrict")
    rows = {row.name for row in table.rows}
    others = tuple(name for name in chosen.methods if name not in rows)
    for name in others:
        find_method(name)
    return Selection(
        table,
        num_samples=chosen.num_samples if chosen.scale is None else round(chosen.scale * table.number),
        seeds=chosen.seeds,
        rows=chosen.methods,
        columns=chosen.columns,
        corruptions=chosen.corruptions,
        stand_ins=_pairs("--stand-in", chosen.stand_in),
        extra=_pairs("--also", chosen.also),
        methods=others,
        changes={name: value for name in given if (value := getattr(chosen, name)) is not None},
    )


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(name and data for name, _, data in pairs):
        raise ValueError(f"{flag} takes NAME=DATA, got {', '.join(texts)}.")
    return {name: data for name, _, data in pairs}


def _engine(chosen: argparse.Namespace) -> Engine:
    """Return what does the runs."""
    if chosen.engine == "local":
        if chosen.address is not None:
            raise ValueError("--address is that of a Ray cluster; it goes with --engine ray.")
        return partial(execute, jobs=chosen.jobs)
    from owttt.bench.ray_engine import execute_on_ray  # noqa: PLC0415

    return partial(execute_on_ray, address=chosen.address, cpus=chosen.cpus)


def run(selection: Selection, folder: Path, engine: Engine) -> list[Done]:
    """Run what is not done, behind a bar."""
    specs, whole = selection.specs(), selection.table.number
    total = sum(cost(spec, whole) for spec in specs)
    under_way = engine(specs, folder)
    return list(weighted(under_way, selection.table.name, total, lambda one: cost(one.spec, whole), _told))


def _told(one: Done) -> str:
    look = "+".join(one.spec.stream.corruptions) or "clean"
    against = "+".join(name.short for name in one.spec.stream.unknown_names)
    return f"{one.spec.method} {look} {against}" + (" failed" if one.error else "")


def _listing(tables: Mapping[str, Table]) -> TerminalTable:
    listing = TerminalTable(
        title="Tables and figures",
        title_justify="left",
        caption="time: all runs at the paper's length, one after the other on this machine; `?`: its model is not here",
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for column in ("name", "runs", "time", "what, and what it lacks"):
        numeric = column in ("runs", "time")
        listing.add_column(column, justify="right" if numeric else "left", no_wrap=column != "what, and what it lacks")
    for name, table in tables.items():
        selection = Selection(table)
        specs, lacks = selection.specs(), selection.missing_data()
        if table.base.model not in models.names():
            lacks.append(f"a model, {table.base.model}")
        seconds = estimate.seconds(specs, table.number)
        time = "?" if seconds is None else duration(seconds)
        missing = f" [red]lacks {', '.join(lacks)}[/]" if lacks else ""
        listing.add_row(name, str(len(specs)), time, f"{table.label}, {table.title}{missing}")
    return listing
