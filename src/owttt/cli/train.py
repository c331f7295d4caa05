"""`owttt train`: a source model, its statistics and its card."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import get_args

from rich.console import Console

from owttt.cli.arguments import describe
from owttt.models import NETWORKS
from owttt.source import ClassCovariance
from owttt.training import Job, Recipe, train_source


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options; every part of the recipe is one."""
    describe(
        parser,
        "Train a source model: weights, source statistics and a card with measured accuracies, in one folder. A run "
        "that was interrupted goes on from its last epoch.",
        "owttt train --data folder:photos --out mymodel",
        "owttt train --data cifar10 --epochs 40 --small-until 0.7 --out c10",
    )
    parser.add_argument("--data", required=True, help="data set to train on")
    parser.add_argument("--test", help="data set to measure on; the same one's test split by default")
    parser.add_argument("--network", default="resnet11", help=f"{', '.join(NETWORKS)} or timm:<name>")
    parser.add_argument("--width", type=int, help="channels of the first stage; the network's usual by default")
    parser.add_argument("--size", type=int, default=Job.size, help="side of the images, in pixels")
    parser.add_argument("--points", type=int, default=256, help="points of a cloud")
    parser.add_argument("--severity", type=int, default=5, help="of the corruptions it is measured under")
    parser.add_argument("--test-number", type=int, help="images per corruption to measure on; all by default")
    parser.add_argument("--start", help="a model to go on from, of the same network and classes")
    parser.add_argument("--teacher", help="a model of the same classes to learn from")
    parser.add_argument("--average", type=float, default=0.0, help="share of the start's weights in the result")
    parser.add_argument(
        "--class-covariance",
        choices=get_args(ClassCovariance),
        default=Job.class_covariance,
        help="form of the classes' covariances in the statistics; diagonal keeps those of many classes small",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write; an interrupted run there goes on")
    recipe = parser.add_argument_group("the recipe")
    for part in fields(Recipe):
        name = f"--{part.name.replace('_', '-')}"
        kind = argparse.BooleanOptionalAction if isinstance(part.default, bool) else None
        if kind:
            recipe.add_argument(name, action=kind, default=part.default, help=_doc(part.name))
        else:
            recipe.add_argument(name, type=type(part.default), default=part.default, help=_doc(part.name))
    parser.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Train, and tell how it went."""
    console = Console()
    job = Job(
        data=chosen.data,
        network=chosen.network,
        test=chosen.test,
        width=chosen.width,
        size=chosen.size,
        points=chosen.points,
        severity=chosen.severity,
        test_number=chosen.test_number,
        start=chosen.start,
        teacher=chosen.teacher,
        average=chosen.average,
        class_covariance=chosen.class_covariance,
        recipe=Recipe(**{part.name: getattr(chosen, part.name) for part in fields(Recipe)}),
    )
    model = train_source(job, chosen.out, tell=lambda line: console.print(line, highlight=False, markup=False))
    console.print(
        f"{model.card['clean']:.2f} % on the clean test set, {model.card['corrupted_mean']:.2f} % under the "
        f"corruptions; it is in {chosen.out}. Use it with `owttt run --model {chosen.out}`.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _doc(field: str) -> str:
    """Return what the recipe's docstring says of a field."""
    lines = (line.split(maxsplit=1) for line in (Recipe.__doc__ or "").splitlines() if line.strip())
    return next(words[1] for words in lines if words[0] == field)
