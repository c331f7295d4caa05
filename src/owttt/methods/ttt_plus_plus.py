"""TTT++, alignment only: match mean and covariance of the features (Liu et al., NeurIPS 2021).

    w·[ ‖C_s - C_t‖²/(4D²) / c  +  mean (μ_s - μ_t)² / m ]

μ_t and C_t come from a queue of the last 1536 features, this batch with gradient; c and m are the same quantities
measured between source batches of N, so both terms are about 1 when the target differs from the source no more than
source batches from each other.

Two bounds are ours, so that small batches and small networks do not diverge: while the queue holds only n < N samples,
batches of n are the measure (c and m are N/n times larger), and the gradient is cut to length `max_norm`, because the
covariance term grows with the fourth power of the features (None: the original).
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from owttt._utils.queue import Queue
from owttt.functional import covariance, covariance_discrepancy, full_precision, mean_discrepancy, wide
from owttt.methods.backbone import BackboneMethod
from owttt.types import Forward


@final
class TTTPlusPlus(BackboneMethod):
    """Align first and second moments with the source."""

    name = "ttt++"
    cost = 4.5
    color = "#b07cc6"

    def __init__(
        self,
        *,
        lr: float = 1e-2,
        momentum: float = 0.9,
        weight: float = 0.05,
        queue: int = 1536,
        max_norm: float | None = 1.0,
        prune: bool = False,
    ) -> None:
        super().__init__(lr=lr, momentum=momentum, max_norm=max_norm, prune=prune)
        self.weight = weight
        self.queue = queue

    def setup(self) -> None:
        """Train the backbone; keep a queue of features."""
        super().setup()
        self.recent = Queue(self.queue, self.source.mean.shape, self.source.mean)

    def loss(self, out: Forward) -> Tensor:
        """Return both discrepancies between the source and the queue, this batch in it, each in its own unit."""
        source, features = self.source, self.recent.joined(wide(out.features))
        self.recent.push(wide(out.features))
        fewer = (source.spread_samples / len(features)).clamp_min(1)
        least = torch.finfo(features.dtype).tiny
        with full_precision(features.device):
            first = mean_discrepancy(source.mean, features.mean(dim=0))
            second = covariance_discrepancy(source.covariance, covariance(features))
        first_unit = (source.mean_spread * fewer).clamp_min(least)
        second_unit = (source.covariance_spread * fewer).clamp_min(least)
        return self.weight * (first / first_unit + second / second_unit)
