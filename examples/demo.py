"""The real thing: all methods on CIFAR-10 in snow, contaminated with MNIST, with a shipped network.

The data comes by itself (`owttt data get cifar10 mnist`); where it cannot, the digits of `digits.py` take its place.
Every method sees the same stream once, without labels: the paper's methods with its options for CIFAR-10-C, `owttt+` as
`wrap` takes it by default.

    python examples/demo.py [--num-samples 1500] [--seed 0] [--out out/demo]
"""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from owttt import METHODS, bench, data, models
from owttt._utils.allocator import keep_freed_memory
from owttt._utils.progress import live
from owttt.bench.figures import overview
from owttt.bench.spec import usual
from owttt.bench.text import methods_table
from owttt.methods import DEFAULT_METHOD

MODEL: Final = "cifar10-resnet11"


def main(arguments: list[str] | None = None) -> Mapping[str, Any]:
    """Fetch, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-samples", type=int, default=1500, help="known images, and as many unknown ones")
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
        outcomes: Mapping[str, Any] = digits["main"](["--seed", str(chosen.seed), "--out", str(chosen.out)])
        return outcomes
    return cifar10(chosen.num_samples, chosen.seed, chosen.out, console)


def cifar10(num_samples: int, seed: int, out: Path, console: Console) -> Mapping[str, Any]:
    """Run all methods on one stream; leave a table, a picture and one JSON per method. What is there is not redone."""
    card = models.load(MODEL).card
    stream = data.StreamSpec("cifar10", ("snow",), unknown=("mnist",), num_samples=num_samples, seed=seed)
    console.print(
        f"{MODEL}: {card['clean']:.1f} % on clean images, {card['corrupted']['snow']:.1f} % in snow; the stream: "
        f"{2 * num_samples} images, half of them digits, in batches of {stream.batch_size}",
        highlight=False,
    )
    results = {}
    for method in METHODS:
        spec = bench.RunSpec(MODEL, stream, **usual(method, preset="cifar10-c"))
        results[method] = bench.run(spec, out / "results", show=partial(_show, method))
    console.print(methods_table("CIFAR-10 in snow (severity 5) against MNIST, one pass", results))
    overview(results, out / "cifar10.png", before="test", after=DEFAULT_METHOD)
    console.print(f"picture: {out / 'cifar10.png'}; `owttt report {out / 'results'}` makes a page", highlight=False)
    return results


def _show(method: str, done: Any, total: int) -> Any:
    """Show the running Acc_H."""
    return live(done, total, f"{method:6}", lambda step: f"Acc_H {100 * step.metrics['acc_h']:.1f}")


if __name__ == "__main__":
    main()
