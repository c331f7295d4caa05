"""What SHOT, TTT++ and TTAC share: one pass with BatchNorm in train mode, one SGD step on all but the head."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from owttt.methods.base import Method
from owttt.network.norm import moving_statistics
from owttt.types import Forward, Verdict


class BackboneMethod(Method, ABC):
    """Train the backbone on a loss a subclass defines; `prune` leaves samples out that the detector rejects."""

    def __init__(self, *, lr: float, momentum: float, max_norm: float | None, prune: bool) -> None:
        super().__init__()
        self.lr = lr
        self.momentum = momentum
        self.max_norm = max_norm
        self.prune = prune

    def setup(self) -> None:
        """Train all but the head."""
        self.optimize_backbone(self.lr, self.momentum)

    def adapt(self, x: Tensor, out: Forward, verdict: Verdict) -> None:
        """Take one step on the loss."""
        x = x[verdict.known] if self.prune else x
        if not len(x):
            return
        with moving_statistics(self.network, self.pace):
            now = self.network(x)
        self.descend(self.loss(now), self.max_norm)

    @abstractmethod
    def loss(self, out: Forward) -> Tensor:
        """Return the loss of a pass in train mode."""
