"""How near the corruptions are to the published generator's, and what they cost, as a Markdown table.

    python benchmarks/corruptions.py cifar10c_reference.npz

The reference holds images (`clean` and one array a corruption, severities first) made by the published generator, and
their numbers in the test set (`idx`). Four draws of ours are held against it: the mean PSNR to the clean images, and
mean and deviation of the channels. Times are of one image on one thread.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from owttt.data.corruptions.images import COMMON, corrupt

DRAWS = 4


def psnr(a: Tensor, b: Tensor) -> float:
    """Return the mean PSNR in dB."""
    error = ((a.double() - b.double()) / 255).square().mean(dim=(1, 2, 3))
    return float((-10 * error.clamp_min(1e-10).log10()).mean())


def statistics(x: Tensor) -> Tensor:
    """Return mean and deviation of each channel, in 0 … 1."""
    channels = x.double().transpose(0, 1).flatten(1) / 255
    return torch.cat((channels.mean(dim=1), channels.std(dim=1)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    torch.set_num_threads(1)
    with np.load(parser.parse_args().reference, allow_pickle=False) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in ("clean", "idx", *COMMON)}
    clean, indices = arrays["clean"].permute(0, 3, 1, 2), arrays["idx"].tolist()
    print("| corruption | PSNR at severity 1 … 5, published | ours | furthest, dB | channels, furthest | ms an image |")
    print("|---|---|---|---|---|---|")
    total = 0.0
    for name in COMMON:
        theirs, ours, gaps, spent = [], [], [], 0.0
        for severity in range(1, 6):
            published = arrays[name][severity - 1].permute(0, 3, 1, 2)
            start = time.perf_counter()
            draws = [corrupt(clean, name, severity, indices=indices, seed=seed) for seed in range(DRAWS)]
            spent += (time.perf_counter() - start) / (5 * DRAWS * len(clean))
            theirs.append(psnr(published, clean))
            ours.append(float(np.mean([psnr(draw, clean) for draw in draws])))
            mean = torch.stack([statistics(draw) for draw in draws]).mean(dim=0)
            gaps.append(float((mean - statistics(published)).abs().max()))
        furthest = max(abs(a - b) for a, b in zip(theirs, ours, strict=True))
        rows = (" ".join(f"{value:.1f}" for value in values) for values in (theirs, ours))
        print(f"| {name} | {' | '.join(rows)} | {furthest:.2f} | {max(gaps):.3f} | {1000 * spent:.2f} |")
        total += 1000 * spent
    print(f"\nAll 15: {total:.1f} ms an image.")


if __name__ == "__main__":
    main()
