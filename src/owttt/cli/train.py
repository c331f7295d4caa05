"""`owttt train`: a source model, its statistics and its card."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from rich.console import Console

from owttt.cli.arguments import Commands
from owttt.models import NETWORKS
from owttt.training import Job, Recipe, train_source


def add(commands: Commands) -> None:
    """Add the command; every part of the recipe is an option."""
    parser = commands.add_parser("train", help="train a source model", description=__doc__)
    parser.add_argument("--data", required=True, help="data set to train on")
    parser.add_argument("--test", help="data set to measure on; the same one's test split by default")
    parser.add_argument("--network", default="resnet26", help=f"{', '.join(NETWORKS)} or timm:<name>")
    parser.add_argument("--width", type=int, help="channels of the first stage")
    parser.add_argument("--size", type=int, default=32, help="pixels")
    parser.add_argument("--points", type=int, default=256, help="of a cloud")
    parser.add_argument("--severity", type=int, default=5, help="of the corruptions it is measured under")
    parser.add_argument("--test-number", type=int, help="images a corruption; all by default")
    parser.add_argument("--start", help="a model to go on from, of the same network and classes")
    parser.add_argument("--teacher", help="a model of the same classes to learn from")
    parser.add_argument("--average", type=float, default=0.0, help="share of the start's weights in the result")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; an interrupted run there goes on")
    recipe = parser.add_argument_group("the recipe")
    for part in fields(Recipe):
        name = f"--{part.name.replace('_', '-')}"
        kind = argparse.BooleanOptionalAction if isinstance(part.default, bool) else None
        if kind:
            recipe.add_argument(name, action=kind, default=part.default)
        else:
            recipe.add_argument(name, type=type(part.default), default=part.default)
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
        recipe=Recipe(**{part.name: getattr(chosen, part.name) for part in fields(Recipe)}),
    )
    model = train_source(job, chosen.out, tell=lambda line: console.print(line, highlight=False, markup=False))
    console.print(
        f"{model.card['clean']:.2f} % on the clean test set, {model.card['corrupted_mean']:.2f} % under the "
        f"corruptions; written to {chosen.out}. Use it with `owttt run --model {chosen.out}`.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
