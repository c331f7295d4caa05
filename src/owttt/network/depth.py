"""How samples look to the layers on the way: the mean of every channel that a normalization layer puts out.

Normalized with the right statistics, known samples look to these layers as the source's samples do, whatever their
corruption was. Samples of another kind do not, even where their features end up near a class. The layers of the last
quarter are left out: they tell classes, and an unknown sample, which is of none, looks more usual to them than a known
one. Where there are BatchNorm layers, these are looked at; all others keep what they are given apart from other
samples, and their means move with a corruption. Those of the known samples are moved back to the source's
(`network.statistics`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from owttt._utils.state import temporary
from owttt.functional import wide
from owttt.network.norm import LAST, batch_norms, normalizations

PART: Final = 0.75
"""The share of the layers, in the order in which a network names them, that samples are looked at in."""


class Seen:
    """What layers have put out so far for so many samples."""

    def __init__(self, samples: int, layers: list[nn.Module]) -> None:
        self.samples = samples
        self._means: dict[nn.Module, Tensor | None] = dict.fromkeys(layers)

    def add(self, layer: nn.Module, output: Any) -> None:
        """Take the mean of every channel of each sample; a layer may be given several rows per sample (points).

        Not so one with channels last: there the rows may be tokens, each of all samples.
        """
        tokens = isinstance(layer, LAST)
        values = output.detach().movedim(-1, 1) if tokens else output.detach()
        rows, rest = divmod(len(values), self.samples)
        if not rest and (rows == 1 or not tokens):
            channels = wide(values).reshape(self.samples, rows, values.shape[1], -1)
            self._means[layer] = channels.mean(dim=(1, 3))

    def result(self) -> Tensor | None:
        """Return the means `(B, C)` of all layers that were called; None if none was (a head for training only)."""
        means = [mean for mean in self._means.values() if mean is not None]
        return torch.cat(means, dim=1) if means else None


@contextmanager
def watching(network: nn.Module, samples: int) -> Iterator[Seen]:
    """While open, note what a network's first normalization layers put out for a batch of so many samples."""
    layers: list[nn.Module] = [*batch_norms(network)] or normalizations(network)
    layers = layers[: math.ceil(PART * len(layers))]
    seen = Seen(samples, layers)
    note = temporary(lambda layer, _, output: seen.add(layer, output))
    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
