"""What keeping freed memory is worth: a forward pass and a training step of the shipped model, with and without.

    python benchmarks/allocator.py

The setting belongs to a process, so two of them take turns, round by round, and the medians are compared.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

ROUNDS = 3


def measure(keep: bool) -> dict[str, float]:
    """Return the seconds of a forward pass and of a training step, in this process."""
    import torch  # noqa: PLC0415

    from owttt import models  # noqa: PLC0415
    from owttt._utils.allocator import keep_freed_memory  # noqa: PLC0415

    if keep:
        keep_freed_memory()
    model = models.load("cifar10-resnet11")
    x = torch.rand(256, 3, 32, 32)

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def step() -> None:
        torch.autograd.backward(model(x).logsumexp(dim=1).sum())

    return {work.__name__: min(_seconds(work) for _ in range(4)) for work in (forward, step)}


def _seconds(work: object) -> float:
    start = time.perf_counter()
    assert callable(work)
    work()
    return time.perf_counter() - start


def main() -> None:
    """Take turns and print the ratios."""
    times: dict[str, list[dict[str, float]]] = {"plain": [], "kept": []}
    for _ in range(ROUNDS):
        for name, found in times.items():
            done = subprocess.run([sys.executable, __file__, name], capture_output=True, check=True, text=True)
            found.append(json.loads(done.stdout))
    for work in ("forward", "step"):
        plain, kept = (statistics.median(one[work] for one in times[name]) for name in ("plain", "kept"))
        print(f"{work}: {plain / kept:.2f} times as fast with freed memory kept")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1] == "kept")))
    else:
        main()
