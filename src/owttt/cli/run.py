"""`owttt run`: one method on one stream."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from pathlib import Path
from typing import get_args

from rich.console import Console

from owttt.bench.run import Step, load_model, make_adapter, make_stream, record, steps
from owttt.bench.spec import RunSpec, paper_preset, with_paper_batches
from owttt.bench.tables import methods_table
from owttt.cli.arguments import Commands, option, threshold, words
from owttt.data.stream_spec import Phases, Share, StreamSpec
from owttt.methods import METHODS
from owttt.names import nearest
from owttt.presets import PRESETS
from owttt.progress import live
from owttt.provenance import write_json
from owttt.types import Order


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("run", help="one method on one stream", description=__doc__)
    parser.add_argument("--model", default="cifar10-resnet26", help="a name of `owttt list`, or a folder")
    parser.add_argument("--method", default="owttt", help=", ".join(METHODS))
    stream = parser.add_argument_group("the stream")
    stream.add_argument("--known", default="cifar10", help="data set of known classes")
    stream.add_argument("--corruption", type=words, default=(), help="one or several, with commas; all: the 15 common")
    stream.add_argument("--severity", type=int, default=5)
    stream.add_argument("--frost", help="folder with photographs of ice, for the corruption frost")
    stream.add_argument("--unknown", type=words, default=(), help="data sets of unknown classes, with commas")
    stream.add_argument("--ratio", type=float, default=1.0, help="unknown samples for each known one")
    stream.add_argument("--number", type=int, help="known samples; all of them by default")
    stream.add_argument("--batch-size", type=int, help="the paper's by default")
    stream.add_argument("--seed", type=int, default=0)
    stream.add_argument("--phases", choices=get_args(Phases), default="mixed", help="order of several corruptions")
    stream.add_argument("--cycles", type=int, default=3, help="how often recurring corruptions recur")
    stream.add_argument("--share", choices=get_args(Share), default="constant", help="of unknown samples over time")
    stream.add_argument("--bursts", type=int, default=5, help="how many, with --share bursts")
    stream.add_argument("--dirichlet", type=float, help="concentration of classes in time, e.g. 0.1")
    stream.add_argument("--repeat", action="store_true", help="unknown samples may come twice")
    stream.add_argument("--stream", type=Path, help="a JSON file with all of that instead")
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


def command(chosen: argparse.Namespace) -> None:
    """Run, write, tell."""
    spec = spec_of(chosen)
    path: Path = chosen.out or Path("results") / f"{file_name(spec)}.json"
    model = load_model(spec)
    stream = make_stream(spec, model)
    adapter = make_adapter(spec, model)
    done = list(live(steps(adapter, stream, len(model.classes)), len(stream), spec.method, describe))
    result = record(spec, adapter, stream, done)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result)
    console = Console()
    console.print(methods_table(title(spec), {spec.method: result}))
    console.print(f"written to {path}", highlight=False, soft_wrap=True)


def spec_of(chosen: argparse.Namespace) -> RunSpec:
    """Return the run that the words describe."""
    if chosen.method not in METHODS:
        raise ValueError(f"No method {chosen.method!r}. {nearest(chosen.method, METHODS)}")
    if chosen.stream is not None:
        stream = StreamSpec.parse(json.loads(chosen.stream.read_text(encoding="utf-8")))
    else:
        stream = StreamSpec(
            known=chosen.known,
            corruptions=chosen.corruption,
            severity=chosen.severity,
            frost=chosen.frost,
            unknown=chosen.unknown,
            ratio=chosen.ratio,
            number=chosen.number,
            batch_size=chosen.batch_size or 256,
            seed=chosen.seed,
            phases=chosen.phases,
            cycles=chosen.cycles,
            share=chosen.share,
            bursts=chosen.bursts,
            dirichlet=chosen.dirichlet,
            repeat=chosen.repeat,
        )
    preset = {"paper": paper_preset(chosen.model, stream.known), "none": None}.get(chosen.preset, chosen.preset)
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"No preset {preset!r}. {nearest(preset, ('paper', 'none', *PRESETS))}")
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
    return spec if chosen.batch_size or chosen.stream else with_paper_batches(spec)


def file_name(spec: RunSpec) -> str:
    """Return a name for a run's file: what it was in short, and a digest of all of it."""
    stream = spec.stream
    known = "-".join((_stem(stream.known), *(stream.corruptions[:3] or ("clean",)), str(stream.severity)))
    unknown = "-".join(map(_stem, stream.unknown)) or "none"
    digest = hashlib.sha256(json.dumps(spec.describe(), sort_keys=True).encode()).hexdigest()[:8]
    return re.sub(r"[^\w.-]+", "-", f"{spec.method}_{known}_{unknown}_{digest}")


def _stem(data: str) -> str:
    return Path(data.partition(":")[2] or data).stem


def describe(step: Step) -> str:
    """Return the running figures behind the bar."""
    figures = "/".join(f"{100 * step.metrics[name]:.1f}" for name in ("acc_s", "acc_n", "acc_h"))
    watched = "".join(f"  {name} {value:g}" for name, value in step.watch.items())
    return f"S/N/H {figures}  τ {step.threshold:.2f}{watched}"


def title(spec: RunSpec) -> str:
    """Return what a run's table is about."""
    stream = spec.stream
    look = f"{' + '.join(stream.corruptions)} {stream.severity}" if stream.corruptions else "clean"
    return f"{spec.model}: {stream.known}, {look}, against {' + '.join(stream.unknown) or 'nothing unknown'}"
