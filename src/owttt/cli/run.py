"""`owttt run`: one or several methods on one stream."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, get_args

from rich.console import Console

from owttt._utils.files import write_json
from owttt._utils.progress import live
from owttt._utils.suggest import suggest
from owttt.adapter import CLASSIFIERS
from owttt.bench.records import RunRecord
from owttt.bench.running import Show, find_or_do
from owttt.bench.spec import RunSpec, paper_preset, usual, usual_score, usual_threshold, with_paper_batches
from owttt.bench.steps import Step
from owttt.bench.text import methods_table, percent
from owttt.cli.arguments import at_least_one, describe, option, threshold, words, writable
from owttt.data.catalog import catalog
from owttt.data.naming import DataName
from owttt.data.streams.spec import Phases, Share, StreamSpec
from owttt.detector import THRESHOLDS, score_names
from owttt.methods import METHODS, find_method, method_names
from owttt.methods.presets import PRESETS
from owttt.types import PREDICT_THEN_ADAPT, Order

ALL: Final = "all"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    describe(
        parser,
        "One or several methods on one stream: a table, and one JSON per run in the results folder, where `owttt "
        "bench` finds it and `owttt report` shows it. What is there is not run again.",
        "owttt run --known cifar10 --corruption snow --unknown mnist",
        "owttt run --known cifar10 --corruption fog --unknown mnist,svhn --method all --num-samples 2000",
        "owttt run --model mymodel --known folder:photos/test --unknown folder:photos/others --method test,owttt",
        "owttt run --model my_package:make --weights my.safetensors --source npz:train.npz --known npz:test.npz",
    )
    parser.add_argument("--model", default="cifar10-resnet11", help="a name, a folder, or package.module:function")
    parser.add_argument("--weights", help="a .safetensors or .pt file for a model that a function makes")
    parser.add_argument(
        "--method", type=words, default=("owttt",), help=f"{', '.join(METHODS)}; several with commas, or all; or "
        "package.module:Class",
    )  # fmt: skip
    stream = parser.add_argument_group("the stream", "What is not given is as in `StreamSpec`, or in --stream.")
    stream.add_argument("--stream", type=Path, help="a JSON file that describes it; other options go on top")
    add_stream(stream)
    how = parser.add_argument_group("how")
    how.add_argument(
        "--preset",
        default="paper",
        help=f"paper (what fits; none for owttt+), none, or one of {', '.join(sorted({*PRESETS} - {'paper'}))}",
    )
    how.add_argument("--order", choices=get_args(Order), default="predict-then-adapt", help="of a batch")
    how.add_argument(
        "--score",
        help=f"{', '.join(score_names())}, or package.module:function; by default the method's, with a preset cosine",
    )
    how.add_argument(
        "--threshold",
        type=threshold,
        help=f"{', '.join(THRESHOLDS)}, a number, or low,high (default: adaptive with a preset, else evidence)",
    )
    how.add_argument("--window", type=at_least_one, default=512, help="scores that the threshold is computed from")
    how.add_argument("--classifier", choices=CLASSIFIERS, default="prototypes", help="what names the class")
    how.add_argument("--source", help="data set to fit source statistics on, if the model brings none")
    how.add_argument(
        "--restrict",
        action=argparse.BooleanOptionalAction,
        help="only classes of the known set compete; on for imagenet-r, off otherwise",
    )
    how.add_argument("--set", type=option, action="append", default=[], metavar="NAME=VALUE", help="a method's option")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder; what is done is not redone")
    parser.add_argument("--out", type=Path, help="a file to write the record of one method to as well")
    parser.set_defaults(command=command)


def add_stream(group: argparse._ArgumentGroup) -> None:
    """Add an option for every part of a stream; what is not given does not appear among the parsed words."""
    for flags, kind, text in (
        (("known",), str, "data set of known classes"),
        (("corruption", "corruptions"), words, "one or several, with commas; all: the 15 common ones, mixed"),
        (("severity",), int, "1 to 5"),
        (("frost",), str, "folder with photographs of ice, for the corruption frost"),
        (("unknown",), words, "data sets of unknown classes, with commas"),
        (("ratio",), float, "unknown samples for each known one"),
        (("num-samples", "number"), int, "known samples; all of them by default"),
        (("batch-size",), int, "the paper's by default"),
        (("seed",), int, "of the choice and order of samples"),
        (("phases",), str, f"of several corruptions: {', '.join(get_args(Phases))}"),
        (("cycles",), int, "how often recurring corruptions recur"),
        (("share",), str, f"of unknown samples over time: {', '.join(get_args(Share))}"),
        (("bursts",), int, "how many, with --share bursts"),
        (("dirichlet",), float, "concentration of classes in time, e.g. 0.1"),
    ):
        name = "corruptions" if "corruptions" in flags else flags[0].replace("-", "_")
        usual = getattr(StreamSpec, name)
        told = text if usual in (None, ()) or name == "batch_size" else f"{text} (default: {usual})"
        group.add_argument(*(f"--{flag}" for flag in flags), dest=name, type=kind, help=told, default=argparse.SUPPRESS)
    group.add_argument("--repeat", action="store_true", help="samples may come twice", default=argparse.SUPPRESS)


def command(chosen: argparse.Namespace) -> None:
    """Run, write, tell."""
    specs = specs_of(chosen)
    if chosen.out and len(specs) > 1:
        raise ValueError("--out takes the record of one method; several are in the results folder.")
    out = writable(chosen.out) if chosen.out else None
    console, notes = Console(), Console(stderr=True)
    records: dict[str, RunRecord] = {}
    for spec in specs:
        record, path, fresh = find_or_do(spec, chosen.results, _show(spec.method))
        records[spec.method] = record
        state = "written to" if fresh else "was there:"
        notes.print(f"{spec.method}: {state} {path}", highlight=False, markup=False, soft_wrap=True)
    if out:
        write_json(out, dict(records[specs[0].method]))
    console.print(methods_table(title(specs[0]), records))
    for name, record in records.items():
        for remark in remarks(record):
            prefix = f"{name}: " if len(records) > 1 else ""
            console.print(prefix + remark, highlight=False, markup=False)


def _show(method: str) -> Show:
    def shown(done: Iterable[Step], total: int) -> Iterable[Step]:
        return live(done, total, method, describe_step)

    return shown


def specs_of(chosen: argparse.Namespace) -> list[RunSpec]:
    """Return the runs that the words describe, one per method."""
    methods = tuple(method_names()) if chosen.method == (ALL,) else chosen.method
    if not methods:
        raise ValueError(f"--method needs a name: {', '.join(method_names())}, or all.")
    for name in methods:
        find_method(name)
    stream, batch_size_given = stream_of(chosen)
    preset = {"paper": paper_preset(chosen.model, stream.known), "none": None}.get(chosen.preset, chosen.preset)
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"No preset {preset!r}. {suggest(preset, ('none', *PRESETS))}")
    entry = catalog().get(stream.known)
    restricted = entry is not None and entry.restrict
    spec = RunSpec(
        model=chosen.model,
        stream=stream,
        preset=preset,
        order=chosen.order,
        window=chosen.window,
        classifier=chosen.classifier,
        source=chosen.source,
        restrict=restricted if chosen.restrict is None else chosen.restrict,
        options=dict(chosen.set),
        weights=chosen.weights,
    )
    spec = spec if batch_size_given else with_paper_batches(spec)
    given = {} if chosen.threshold is None else {"threshold": chosen.threshold}
    return [replace(spec, **{**_usual(method, preset, chosen), **given}) for method in methods]


def _usual(method: str, preset: str | None, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return how a method is run; with a preset that somebody has named, all methods run with it."""
    if chosen.preset == "paper":
        return usual(method, preset, chosen.score)
    score = chosen.score or usual_score(method, preset)
    return {"method": method, "preset": preset, "score": score, "threshold": usual_threshold(preset, score)}


def stream_of(chosen: argparse.Namespace) -> tuple[StreamSpec, bool]:
    """Return the stream, from the file and the words, and whether they say its batch size."""
    given = {field.name: vars(chosen)[field.name] for field in fields(StreamSpec) if field.name in vars(chosen)}
    if chosen.stream is None:
        return StreamSpec(**given), "batch_size" in given
    try:
        described = StreamSpec.parse(chosen.stream.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{chosen.stream}: not JSON ({error}).") from error
    except ValueError as error:
        raise ValueError(f"{chosen.stream}: {error}") from error
    return replace(described, **given), True


def describe_step(step: Step) -> str:
    """Return the running figures behind the bar."""
    figures = "/".join(percent(step.metrics[name]) for name in ("acc_s", "acc_n", "acc_h"))
    cost = f"closed {percent(step.metrics['acc_closed'])} rejected {percent(step.metrics['known_rejected'])}"
    watched = "".join(f" {name} {value:g}" for name, value in step.watch.items())
    return f"S/N/H {figures} {cost} τ {step.threshold:.2f}{watched}"


def remarks(record: RunRecord) -> Sequence[str]:
    """Return what a reader of the row should know."""
    said = []
    thresholds, edges = record["curves"]["threshold"], record["scores"]["edges"]
    if all(value is None or math.isinf(value) for value in thresholds) and record["spec"]["threshold"] != "off":
        said.append(
            f"No threshold was found, so nothing was rejected: the scores span {edges[-1] - edges[0]:.3g}, "
            "too little for the steps in which it is sought. Try --score energy, or a number as --threshold."
        )
    if events := record.get("events"):
        kinds = ", ".join(sorted({event["kind"] for event in events}))
        said.append(f"The guard acted ({kinds}), last at batch {events[-1]['batch']}: {events[-1]['detail']}.")
    method = find_method(record["spec"]["method"])
    learns_after = method.adapts and not method.gathers and record["spec"]["order"] == PREDICT_THEN_ADAPT
    if len(thresholds) == 1 and learns_after:
        said.append("One batch only: it was predicted before anything could be learned from it.")
    return said


def title(spec: RunSpec) -> str:
    """Return what a run's table is about."""
    stream = spec.stream
    look = f"{' + '.join(stream.corruptions)} {stream.severity}" if stream.corruptions else "clean"
    against = " + ".join(name.short for name in stream.unknown_names) or "nothing unknown"
    return f"{spec.model}: {DataName.parse(stream.known).short}, {look}, against {against}"
