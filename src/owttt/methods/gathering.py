"""Samples of small batches, kept until there are enough of them to learn from."""

from __future__ import annotations

from typing import Final, final

import torch
from torch import nn

from owttt._utils.queue import Queue
from owttt.network.inputs import Batch, Fields, tensors_of
from owttt.source import SourceStats

ENOUGH: Final = 64
"""Samples that are enough for a step, and for statistics of their own."""


@final
class Gathered(nn.Module):
    """The samples of batches of fewer than `size`, until at least `size` have come: then all of them are one batch."""

    def __init__(self, source: SourceStats, size: int) -> None:
        super().__init__()
        self.size = size
        self.queues = nn.ModuleDict(
            {
                f"input{place}": Queue(2 * size, shape, source.mean.new_zeros(0, dtype=_kept_as(kind, source)))
                for place, (shape, kind) in enumerate(source.info.inputs.values())
            }
        )

    def add(self, batch: Batch) -> Batch | None:
        """Keep the samples of a batch; return all that were gathered, as one batch like it, once there are enough."""
        for queue, rows in zip(self._queues, tensors_of(batch).values(), strict=True):
            queue.push(rows)
        if len(self) < self.size:
            return None
        gathered = self.so_far(batch)
        self.clear()
        return gathered

    def clear(self) -> None:
        """Drop what was gathered."""
        for queue in self._queues:
            queue.count.zero_()

    def so_far(self, like: Batch) -> Batch:
        """Return what was gathered, as a batch like the ones it came in."""
        rows = {
            name: queue.values.to(value.dtype, copy=True)
            for (name, value), queue in zip(tensors_of(like).items(), self._queues, strict=True)
        }
        return Fields(rows) if isinstance(like, Fields) else rows[""]

    def __len__(self) -> int:
        return int(self._queues[0].count)

    @property
    def _queues(self) -> list[Queue]:
        return [queue for queue in self.queues.values() if isinstance(queue, Queue)]


def zeros_like_source(source: SourceStats, samples: int = 2) -> Batch:
    """Return a batch of zeros in the shape of the source data."""
    rows = {
        name: source.mean.new_zeros(samples, *shape, dtype=getattr(torch, kind))
        for name, (shape, kind) in source.info.inputs.items()
    }
    return Fields(rows) if source.info.fields else rows[""]


def _kept_as(kind: str, source: SourceStats) -> torch.dtype:
    """Return the type that inputs are gathered in: their own, but floats for bytes, which may come as either."""
    own: torch.dtype = getattr(torch, kind)
    return source.mean.dtype if own == torch.uint8 else own
