"""The real thing: seven methods on CIFAR-10 in snow, contaminated with MNIST, with the shipped ResNet-26.

The data comes by itself (`owttt data get cifar10 mnist`); where it cannot, the digits of `digits.py` take its place.
Every method sees the same stream once, without labels, with the paper's options for CIFAR-10-C.

    python examples/demo.py [--number 2000] [--seed 0] [--out out/demo]
"""

from __future__ import annotations

import argparse
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from owttt import METHODS, data, models
from owttt._utils.allocator import keep_freed_memory
from owttt._utils.files import write_json
from owttt._utils.progress import live
from owttt.bench.figures import overview
from owttt.bench.run import make_adapter, make_stream, record, steps
from owttt.bench.spec import RunSpec
from owttt.bench.text import methods_table


def main(arguments: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Fetch, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=2000, help="known images, and as many unknown ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    chosen = parser.parse_args(arguments)
    keep_freed_memory()
    console = Console()
    try:
        for name in ("cifar10", "mnist"):
            data.get(name, tell=lambda line: console.print(line, highlight=False, soft_wrap=True))
    except OSError as error:
        console.print(f"{error}\n\nThe data cannot be had here, so the digits run instead.\n", soft_wrap=True)
        digits = runpy.run_path(str(Path(__file__).with_name("digits.py")))
        outcomes: dict[str, dict[str, Any]] = digits["main"](["--seed", str(chosen.seed), "--out", str(chosen.out)])
        return outcomes
    return cifar10(chosen.number, chosen.seed, chosen.out, console)


def cifar10(number: int, seed: int, out: Path, console: Console) -> dict[str, dict[str, Any]]:
    """Run all methods on one stream, and leave a table, a picture and a JSON a method."""
    stream = data.StreamSpec(known="cifar10", corruptions=("snow",), unknown=("mnist",), number=number, seed=seed)
    spec = RunSpec("cifar10-resnet26", stream, preset="cifar10-c")
    model = models.load(spec.model)
    opened = make_stream(spec, model)
    console.print(
        f"{spec.model}: {model.card['clean']:.1f} % on clean images, {model.card['corrupted']['snow']:.1f} % in snow; "
        f"the stream: {len(opened.plan)} images, half of them digits, in batches of {stream.batch_size}",
        highlight=False,
    )
    batches = list(opened)
    results = {}
    for method in METHODS:
        one = replace(spec, method=method)
        adapter = make_adapter(one, model)
        done = list(live(steps(adapter, batches, len(model.classes)), len(batches), f"{method:6}", show))
        results[method] = record(one, adapter, opened, done)
        if not console.is_terminal:
            console.print(f"{method}: {show(done[-1])}", highlight=False)
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / f"{method}.json", results[method])
    console.print(methods_table("CIFAR-10 in snow (severity 5) against MNIST, one pass", results))
    overview(results, out / "cifar10.png")
    console.print(f"picture: {out / 'cifar10.png'}; results: {out}/*.json", highlight=False)
    return results


def show(step: Any) -> str:
    """Return the running Acc_H."""
    return f"Acc_H {100 * step.metrics['acc_h']:.1f}"


if __name__ == "__main__":
    main()
