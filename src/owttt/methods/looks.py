"""How the samples of a stream look, in parts: the known ones, and up to three kinds that were found to be unknown.

Looks are means and log-deviations of early channels (`network.statistics.looks`) in units of their usual deviation. A
part is a Gaussian of them in the plane of their principal axes. A sample is strange if, of all parts, an unknown one
is the likeliest, and if it lies inside of that: a look never seen before is nobody's.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self, final

import torch
from torch import Tensor

from owttt._utils.queue import Statistics
from owttt.functional import full_precision
from owttt.functional.groups import AXES, Component, component_of, plane_of

PARTS: Final = 3
"""Kinds of unknown samples that are told apart at most."""
INSIDE: Final = 16.0
"""The squared distance from a part's mean, in its deviations, up to which a look is inside of it."""
FLAT: Final = 1e-3
"""What is added to deviations before their logarithm is taken: channels may be constant."""
DOUBT: Final = 0.05
"""Parts are distinct if the probabilities of being in another part than the likeliest add up to less than this share of
the strangers (of the others, if these are fewer)."""
NOBODY: Final = -1e9
"""The log-share of a part that is not there: finite, as all of a state has to be."""


class Looks(NamedTuple):
    """The parts of a stream; the first is everything that is not strange. Parts that are not there have no share."""

    scale: Tensor
    center: Tensor
    axes: Tensor
    log_share: Tensor
    mean: Tensor
    covariance: Tensor
    doubt: Tensor

    @classmethod
    def of(cls, raw: Tensor, part: Tensor) -> Self:
        """Return the parts of raw looks `(B, 2, C)`, given which part each sample is in, `(B,)`, counted from 0."""
        with full_precision(raw.device):
            return cls._of(raw, part)

    @classmethod
    def _of(cls, raw: Tensor, part: Tensor) -> Self:
        scale = scale_of(raw)
        points = described(raw, scale)
        plane = plane_of(points)
        axes = torch.nn.functional.pad(plane.axes, (0, AXES - plane.axes.shape[1]))
        seen = (points - plane.center) @ axes
        belongs = torch.stack([part == index for index in range(1 + PARTS)]).to(seen.dtype)
        found = component_of(seen, belongs)
        log_share = found.log_share.masked_fill(belongs.sum(dim=1) == 0, NOBODY)
        sure = Component(log_share, *found[1:]).log_density(seen).softmax(dim=0).amax(dim=0)
        fewer = torch.minimum(belongs[0].sum(), belongs[1:].sum()).clamp_min(1)
        doubt = (1 - sure).sum() / fewer
        return cls(scale, plane.center, axes, log_share, found.mean, found.covariance, doubt)

    @property
    def distinct(self) -> bool:
        """Whether hardly any sample could be in one part as well as in another."""
        return float(self.doubt) < DOUBT

    def strange(self, raw: Tensor) -> Tensor:
        """Return which samples are of an unknown part, `(B,)` bool."""
        parts = Component(self.log_share, self.mean, self.covariance)
        with full_precision(raw.device):
            seen = (described(raw, self.scale) - self.center) @ self.axes
            which = parts.log_density(seen).argmax(dim=0)
            inside = parts.distance(seen).gather(0, which[None])[0] <= INSIDE
        return (which > 0) & inside

    @property
    def strangers(self) -> int:
        """How many unknown parts there are."""
        return int((self.log_share[1:] > NOBODY).sum())


def scale_of(raw: Tensor) -> Tensor:
    """Return the usual deviation `(C,)` of every channel; 1 where it has none."""
    usual = raw[:, 1].mean(dim=0)
    return usual.where(usual > 0, torch.ones_like(usual)).clamp_min(1e-6)


def described(raw: Tensor, scale: Tensor) -> Tensor:
    """Return raw looks `(B, 2, C)` as points `(B, 2C)`, in units of the usual deviation."""
    mean, deviation = (raw / scale).unbind(dim=1)
    return torch.cat((mean, (deviation + FLAT).log()), dim=1)


@final
class KeptLooks(Statistics):
    """The parts of a stream as state of a method: how they were when they were last looked for."""

    def __init__(self, first: Tensor) -> None:
        super().__init__()
        for name, value in Looks.of(first, torch.zeros(len(first), device=first.device))._asdict().items():
            self.register_buffer(name, value.contiguous())

    @property
    def now(self) -> Looks:
        """The parts."""
        return Looks(*(getattr(self, name) for name in Looks._fields))

    def keep(self, parts: Looks) -> None:
        """Remember parts."""
        for mine, value in zip(self.now, parts, strict=True):
            mine.copy_(value)

    def forget(self) -> None:
        """Take nothing for strange any more."""
        self.now.log_share[1:] = NOBODY
