"""Rails for methods that learn: enough samples for a step, steps that fit them, and an eye on collapse.

gathering   Batches of fewer than `ENOUGH` samples are answered at once and learned from together, once there are
            enough.
pace        The published learning rates are for batches of `FULL`; fewer samples move weights and BatchNorm's
            statistics in proportion less. Statistics of a batch of fewer than `ENOUGH` are mixed with the source's.
collapse    A network that collapses answers with ever fewer classes. One sample in `EVERY` is also shown to the model
            as it came: number i of the stream if the fraction of i / golden ratio is below 1 / `EVERY`, so that no
            class that comes at regular intervals is always left out. Of the last `COMPARED` answers, effective classes
            beyond the first, exp(H) - 1, are counted; if they are less than `SHARE` of what that model gives on the
            same samples, everything goes back to how it began. A stream of one class alarms nobody: there, both give
            few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import torch
from torch import Tensor, nn

from owttt._utils.queue import Queue
from owttt.functional import effective_classes
from owttt.methods.base import Method
from owttt.methods.gathering import ENOUGH, Gathered
from owttt.network.inputs import Batch

FULL: Final = 256
GOLDEN: Final = (5**0.5 - 1) / 2
EVERY: Final = 16
COMPARED: Final = 128
LEAST_COMPARED: Final = 48
SHARE: Final = 0.5
LEAST_CLASSES: Final = 1.5


@final
class Rails(nn.Module):
    """What keeps a method that learns from doing harm; its state is part of the adapter's."""

    seen: Tensor

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.num_classes = method.source.num_classes
        self.gathered = None if method.gathers else Gathered(method.source, ENOUGH)
        self.pairs = Queue(COMPARED, (2,), method.source.prototypes)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long, device=method.source.mean.device))

    def enough(self, batch: Batch) -> Batch | None:
        """Return what to learn from now: the batch, those gathered up to now, or nothing yet."""
        if self.gathered is None or len(batch) >= ENOUGH:
            return batch
        return self.gathered.add(batch)

    def collapsed(self, batch: Batch, answers: Tensor, original: Callable[[Batch], Tensor]) -> str:
        """Compare some answers with those of the model as it came; say what is wrong, nothing if all is well."""
        numbers = self.seen + torch.arange(len(batch), device=self.seen.device)
        chosen = (numbers.double() * GOLDEN) % 1 < 1 / EVERY
        self.seen += len(batch)
        if not bool(chosen.any()):
            return ""
        self.pairs.push(torch.stack((answers[chosen], original(batch[chosen])), dim=1))
        if int(self.pairs.count) < LEAST_COMPARED:
            return ""
        now, before = (effective_classes(column.long(), self.num_classes) for column in self.pairs.values.T)
        fewer = before >= LEAST_CLASSES and now - 1 < SHARE * (before - 1)
        return f"{now:.1f} effective classes, {before:.1f} without adapting" if fewer else ""


def pace(samples: int) -> float:
    """Return the share of a full step that so many samples are worth."""
    return min(1.0, samples / FULL)
