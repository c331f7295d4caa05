"""`owttt` with statistics that move faster: BatchNorm's momentum set on the layers, the paper's preset otherwise.

python benchmarks/late_statistics.py [--momentum 0.3] [--corruption gaussian_noise] [--unknown mnist] [--known N]

What it is for: docs/research/networks.md, "Why `owttt` can stay behind `bn`".
"""

from __future__ import annotations

import argparse

from rich.console import Console
from torch.nn.modules.batchnorm import _BatchNorm

from owttt import OpenWorldMetrics, wrap
from owttt._utils.progress import track
from owttt.data import Frame, Stream, StreamSpec
from owttt.models import load


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cifar10-resnet11")
    parser.add_argument("--momentum", type=float, default=0.3)
    parser.add_argument("--corruption", default="gaussian_noise")
    parser.add_argument("--unknown", default="mnist")
    parser.add_argument("--known", type=int, help="known samples; all by default")
    chosen = parser.parse_args()
    model = load(chosen.model)
    for layer in model.modules():
        if isinstance(layer, _BatchNorm):
            layer.momentum = chosen.momentum
    unknown = (chosen.unknown,)
    spec = StreamSpec("cifar10", (chosen.corruption,), unknown=unknown, num_samples=chosen.known)
    adapter = wrap(model, "owttt", source=model.source, preset="cifar10-c")
    metrics = OpenWorldMetrics(num_classes=10)
    for x, y in track(Stream(spec, frame=Frame(model.preprocessing.size)), chosen.corruption):
        metrics.update(adapter(x), y)
    found = metrics.compute()
    shown = ", ".join(f"{name} {100 * found[name]:.1f}" for name in ("acc_s", "acc_n", "acc_h", "auroc"))
    Console().print(f"{chosen.corruption} against {chosen.unknown}, momentum {chosen.momentum}: {shown}")


if __name__ == "__main__":
    main()
