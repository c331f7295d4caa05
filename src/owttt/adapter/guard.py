"""What is plausible: samples that the source data gives no reason to learn from, and states not to be kept.

A sample is an outlier if a value of it lies farther from the middle of the source's range than `RANGES` times that
range (a picture scaled by 255, a pixel of 1e30), if the mean of a channel is more than `DEVIATIONS` deviations from the
source's (a deviation counts as at least `LEAST_DEVIATION` times that range), or if its features are not finite, or
`LENGTHS` times as long as the source's and as those of its batch. A state is implausible if a tensor of it is not
finite, or one of the network `GROWTH` times as long as it was at first. All limits are far beyond what a corruption,
another camera or the paper's updates come to.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, final

import torch
from torch import Tensor

from owttt._utils.warning import warn
from owttt.functional import floating, wide
from owttt.source import SourceStats
from owttt.source.moments import channels

RANGES: Final = 5.0
DEVIATIONS: Final = 50.0
LEAST_DEVIATION: Final = 1e-3
LENGTHS: Final = 10_000.0
GROWTH: Final = 100.0
KEPT_EVENTS: Final = 100
INPUTS: Final = ".queues."
"""In the names of gathered inputs, which were looked at when they came."""


@final
@dataclass(frozen=True)
class Event:
    """Something that the guard did: at which batch (counted from 0), what, and why."""

    batch: int
    kind: str
    """ "outliers": samples were left out; "rolled back": an update was undone; "collapsed": all began anew."""
    detail: str


@final
@dataclass
class Log:
    """The last events, and how many batches and samples there were."""

    batches: int = 0
    samples: int = 0
    told: int = 0
    """Events so far, those no longer kept included."""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))

    def tell(self, kind: str, detail: str) -> None:
        """Note what was done with the present batch, and warn the first time."""
        if not self.events:
            warn(f"Batch {self.batches}: {detail} ({kind}). See adapter.events; this is said once.")
        self.events.append(Event(self.batches, kind, detail))
        self.told += 1

    def begin_anew(self) -> None:
        """Forget everything."""
        self.batches = self.samples = self.told = 0
        self.events.clear()


def implausible_inputs(x: Tensor, source: SourceStats) -> Tensor:
    """Return which samples `(B,)` lie far outside what the source data was; none where it does not say."""
    nothing = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if source.input_range is None or source.input_mean is None or source.input_std is None:
        return nothing
    if x.is_floating_point() != getattr(torch, source.info.input_dtype).is_floating_point:
        return nothing
    low, high = wide(source.input_range)
    values = wide(floating(x))
    flat = values.reshape(len(x), -1)
    reach = RANGES * (high - low).clamp_min(1e-12)
    middle = (low + high) / 2
    far = ((flat.amax(dim=1) - middle) > reach) | ((middle - flat.amin(dim=1)) > reach)
    usual = torch.maximum(source.input_std, LEAST_DEVIATION * (high - low)).clamp_min(1e-6)
    shifted = ((channels(values).mean(dim=2) - source.input_mean).abs() > DEVIATIONS * usual).any(dim=1)
    return torch.logical_or(far, shifted)


def implausible_features(features: Tensor, source: SourceStats) -> Tensor:
    """Return which samples `(B,)` have features that are not finite, or far too long.

    Too long is more than `LENGTHS·max(√(|μ|² + tr Σ), m)` with the source's Gaussian and m the median length in the
    batch: those of an untrained network may all grow a thousandfold with the statistics of a batch.
    """
    lengths = wide(features.detach()).norm(dim=1)
    usual = (wide(source.mean).square().sum() + wide(source.covariance).trace()).sqrt()
    most = LENGTHS * torch.maximum(usual, lengths.nanmedian())
    return torch.logical_or(~lengths.isfinite(), lengths > most)


def implausible_state(tensors: dict[str, Tensor], first: dict[str, Tensor], network: str) -> str:
    """Return the name of a tensor that is not finite, or of the network's and grown beyond reason; "" if none is."""
    floating = {name: value for name, value in tensors.items() if value.is_floating_point() and INPUTS not in name}
    norms = dict(zip(floating, torch._foreach_norm(list(floating.values())), strict=True)) if floating else {}
    for name, norm in norms.items():
        length = float(norm)
        if not length < float("inf"):
            return name
        if name.startswith(network) and name in first:
            start = float(first[name].norm()) + first[name].numel() ** 0.5
            if length > GROWTH * start:
                return name
    return ""
