"""BN: batch statistics instead of the source's (Schneider et al., NeurIPS 2020; Nado et al., 2020).

Every BatchNorm layer normalizes with `(1 - α)·source + α·batch`; α = 1 is prediction-time batch normalization. There is
no state to learn: each batch stands for itself.
"""

from __future__ import annotations

from typing import final

from torch import Tensor

from owttt.methods.base import Method
from owttt.network.norm import batch_norms, batch_statistics
from owttt.types import Forward, Verdict


@final
class BatchNorm(Method):
    """Predict with the statistics of the batch."""

    name = "bn"
    cost = 1.2
    color = "#7f868e"
    adapts = False

    def __init__(self, *, alpha: float = 1.0) -> None:
        super().__init__()
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha is a share between 0 and 1, got {alpha}.")
        self.alpha = alpha

    def setup(self) -> None:
        """Refuse a network without BatchNorm: this method would be TEST under another name."""
        if not batch_norms(self.network):
            raise ValueError(
                "Method 'bn' replaces the statistics of BatchNorm layers and this network has none; use "
                "'owttt+', which corrects features instead, 'test', or a method that trains ('owttt', …)."
            )

    def forward(self, x: Tensor) -> Forward:
        """Predict with mixed statistics."""
        with batch_statistics(self.network, self.alpha * self.batch_share(len(x))):
            return super().forward(x)

    def adapt(self, x: Tensor, out: Forward, verdict: Verdict) -> None:
        """Do nothing: the adaptation is in the forward pass."""
