"""How long runs take on this machine: a forward pass is timed, and methods say how many of them a sample costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Final

import torch

from owttt import models
from owttt.bench.engine import WHOLE, cost
from owttt.bench.spec import RunSpec
from owttt.data.generated.noise import Noise
from owttt.data.modalities import as_float

BATCH: Final = 64
ROUNDS: Final = 3


def seconds(specs: Sequence[RunSpec], whole: int = WHOLE) -> float | None:
    """Return about how long runs take, one after the other; None where a model is not on this machine."""
    total = 0.0
    for spec in specs:
        each = seconds_per_pass(spec.model)
        if each is None:
            return None
        total += each * cost(spec, whole)
    return total


@cache
def seconds_per_pass(model: str) -> float | None:
    """Return the time of one sample's forward pass, the best of a few batches; None for what is not shipped."""
    if model not in models.shipped():
        return None
    loaded = models.load(model)
    x = as_float(Noise(BATCH, uniform=True).batch(range(BATCH), loaded.preprocessing.frame))
    best = float("inf")
    with torch.inference_mode():
        for _ in range(ROUNDS):
            start = time.perf_counter()
            loaded(x)
            best = min(best, time.perf_counter() - start)
    return best / BATCH
