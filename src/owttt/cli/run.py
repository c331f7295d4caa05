"""`owttt run`: one method on one stream."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import numpy as np
from rich.console import Console

from owttt._utils.files import write_json
from owttt._utils.progress import live
from owttt._utils.suggest import suggest
from owttt.bench.run import Step, load_model, make_adapter, make_stream, record, steps
from owttt.bench.spec import RunSpec, paper_preset, with_paper_batches
from owttt.bench.text import methods_table
from owttt.cli.arguments import Commands, option, threshold, words, writable
from owttt.data.streams.spec import Phases, Share, StreamSpec
from owttt.methods import METHODS
from owttt.methods.presets import PRESETS
from owttt.types import PREDICT_THEN_ADAPT, Order


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("run", help="one method on one stream", description=__doc__)
    parser.add_argument("--model", default="cifar10-resnet26", help="a name of `owttt list`, or a folder")
    parser.add_argument("--method", default="owttt", help=", ".join(METHODS))
    stream = parser.add_argument_group("the stream", "What is not given is as in `StreamSpec`, or in --stream.")
    stream.add_argument("--stream", type=Path, help="a JSON file that describes it; other options go on top")
    add_stream(stream)
    how = parser.add_argument_group("the method")
    how.add_argument("--preset", default="paper", help=f"paper (as fits), none, or one of {', '.join(PRESETS)}")
    how.add_argument("--order", choices=get_args(Order), default="predict-then-adapt")
    how.add_argument("--score", default="cosine")
    how.add_argument("--threshold", type=threshold, default="adaptive", help="a name, a number, or low,high")
    how.add_argument("--window", type=int, default=512)
    how.add_argument("--classifier", choices=("prototypes", "head"), default="prototypes")
    how.add_argument("--source", help="data set to fit source statistics on, if the model brings none")
    how.add_argument(
        "--restrict",
        action=argparse.BooleanOptionalAction,
        help="only classes of the known set compete; on for imagenet-r, off otherwise",
    )
    how.add_argument("--set", type=option, action="append", default=[], metavar="NAME=VALUE", help="a method's option")
    parser.add_argument("--out", type=Path, help="the JSON to write; in `results` by default")
    parser.set_defaults(command=command)


def add_stream(group: argparse._ArgumentGroup) -> None:
    """Add an option for every part of a stream; what is not given does not appear among the parsed words."""
    for name, kind, text in (
        ("known", str, "data set of known classes"),
        ("corruptions", words, "one or several, with commas; all: the 15 common ones, mixed"),
        ("severity", int, "1 to 5"),
        ("frost", str, "folder with photographs of ice, for the corruption frost"),
        ("unknown", words, "data sets of unknown classes, with commas"),
        ("ratio", float, "unknown samples for each known one"),
        ("number", int, "known samples; all of them by default"),
        ("batch_size", int, "the paper's by default"),
        ("seed", int, "of the choice and order of samples"),
        ("phases", str, f"of several corruptions: {', '.join(get_args(Phases))}"),
        ("cycles", int, "how often recurring corruptions recur"),
        ("share", str, f"of unknown samples over time: {', '.join(get_args(Share))}"),
        ("bursts", int, "how many, with --share bursts"),
        ("dirichlet", float, "concentration of classes in time, e.g. 0.1"),
    ):
        option_name = "--corruption" if name == "corruptions" else f"--{name.replace('_', '-')}"
        group.add_argument(option_name, dest=name, type=kind, help=text, default=argparse.SUPPRESS)
    group.add_argument("--repeat", action="store_true", help="samples may come twice", default=argparse.SUPPRESS)


def command(chosen: argparse.Namespace) -> None:
    """Run, write, tell."""
    spec = spec_of(chosen)
    path = writable(chosen.out or Path("results") / f"{file_name(spec)}.json")
    model = load_model(spec)
    stream = make_stream(spec, model)
    adapter = make_adapter(spec, model)
    done = list(live(steps(adapter, stream, len(model.classes)), len(stream), spec.method, describe))
    result = record(spec, adapter, stream, done)
    write_json(path, result)
    console = Console()
    console.print(methods_table(title(spec), {spec.method: result}))
    for remark in remarks(spec, done):
        console.print(remark, highlight=False, markup=False)
    console.print(f"written to {path}", highlight=False, markup=False, soft_wrap=True)


def spec_of(chosen: argparse.Namespace) -> RunSpec:
    """Return the run that the words describe."""
    if chosen.method not in METHODS:
        raise ValueError(f"No method {chosen.method!r}. {suggest(chosen.method, METHODS)}")
    stream, batch_size_given = stream_of(chosen)
    preset = {"paper": paper_preset(chosen.model, stream.known), "none": None}.get(chosen.preset, chosen.preset)
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"No preset {preset!r}. {suggest(preset, ('paper', 'none', *PRESETS))}")
    spec = RunSpec(
        model=chosen.model,
        stream=stream,
        method=chosen.method,
        preset=preset,
        order=chosen.order,
        score=chosen.score,
        threshold=chosen.threshold,
        window=chosen.window,
        classifier=chosen.classifier,
        source=chosen.source,
        restrict=stream.known == "imagenet-r" if chosen.restrict is None else chosen.restrict,
        options=dict(chosen.set),
    )
    return spec if batch_size_given else with_paper_batches(spec)


def stream_of(chosen: argparse.Namespace) -> tuple[StreamSpec, bool]:
    """Return the stream, from the file and the words, and whether they say its batch size."""
    given = {field.name: vars(chosen)[field.name] for field in fields(StreamSpec) if field.name in vars(chosen)}
    if chosen.stream is None:
        return StreamSpec(**given), "batch_size" in given
    try:
        described = StreamSpec.parse(chosen.stream.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{chosen.stream}: {error}") from error
    return replace(described, **given), True


def file_name(spec: RunSpec) -> str:
    """Return a name for a run's file: what it was in short, and a digest of all of it."""
    stream = spec.stream
    look = (*stream.corruptions[:3], str(stream.severity)) if stream.corruptions else ("clean",)
    known = "-".join((_stem(stream.known), *look))
    unknown = "-".join(map(_stem, stream.unknown)) or "none"
    return re.sub(r"[^\w.-]+", "-", f"{spec.method}_{known}_{unknown}_{spec.digest[:8]}")


def _stem(data: str) -> str:
    return Path(data.partition(":")[2] or data).stem


def describe(step: Step) -> str:
    """Return the running figures behind the bar."""
    figures = "/".join(f"{100 * step.metrics[name]:.1f}" for name in ("acc_s", "acc_n", "acc_h"))
    watched = "".join(f"  {name} {value:g}" for name, value in step.watch.items())
    return f"S/N/H {figures}  τ {step.threshold:.2f}{watched}"


def remarks(spec: RunSpec, done: Sequence[Step]) -> list[str]:
    """Return what a reader of the row should know."""
    said = []
    if all(math.isinf(step.threshold) for step in done) and spec.threshold != "off":
        scores = np.concatenate([step.scores for step in done])
        said.append(
            f"No threshold was found, so nothing was rejected: the scores span {np.ptp(scores):.3g}, and it is sought "
            "in steps of .01. Try --score energy, or a number as --threshold."
        )
    if len(done) == 1 and spec.order == PREDICT_THEN_ADAPT:
        said.append("One batch only: it was predicted before anything could be learned from it.")
    return said


def title(spec: RunSpec) -> str:
    """Return what a run's table is about."""
    stream = spec.stream
    look = f"{' + '.join(stream.corruptions)} {stream.severity}" if stream.corruptions else "clean"
    return f"{spec.model}: {stream.known}, {look}, against {' + '.join(stream.unknown) or 'nothing unknown'}"
