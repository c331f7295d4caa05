"""TENT: fully test-time adaptation by entropy minimisation (Wang et al., ICLR 2021).

    min over scale and shift of the normalisation layers of  mean_i H(softmax(l_i)),  with batch statistics

The loss is taken on the very forward pass that predicted: one forward, one backward a batch. Adam 1e-3 on CIFAR, SGD
2.5e-4 with momentum 0.9 on ImageNet.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import Tensor, nn

from owttt.functional import entropy
from owttt.method import Method
from owttt.norm import affine_parameters, batch_statistics, keep_group_norm_alive
from owttt.types import Forward, Verdict


@final
class Tent(Method):
    """Minimise entropy over normalisation scales and shifts; `prune` leaves rejected samples out of the loss."""

    name = "tent"

    def __init__(
        self,
        *,
        lr: float = 1e-3,
        optimiser: Literal["adam", "sgd"] = "adam",
        momentum: float = 0.9,
        prune: bool = False,
    ) -> None:
        super().__init__()
        if optimiser not in ("adam", "sgd"):
            raise ValueError(f"optimiser must be 'adam' or 'sgd', got {optimiser!r}.")
        self.lr = lr
        self.optimiser = optimiser
        self.momentum = momentum
        self.prune = prune

    def setup(self) -> None:
        """Give the affine parameters their optimiser; refuse a network that has none."""
        parameters = affine_parameters(self.network)
        if not parameters:
            raise ValueError(
                "Method 'tent' trains the scale and shift of normalisation layers and this network has none; use "
                "'owttt', 'ttac', 'shot' or 'ttt++', which train the whole backbone."
            )
        self.optimise(parameters, self._make)
        keep_group_norm_alive(self.network)

    def _make(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if self.optimiser == "adam":
            eps = max(1e-8, torch.finfo(parameters[0].dtype).tiny)
            return torch.optim.Adam(parameters, lr=self.lr, eps=eps)
        return torch.optim.SGD(parameters, lr=self.lr, momentum=self.momentum)

    @property
    def backpropagates(self) -> bool:
        """The loss is on the logits of the prediction itself."""
        return True

    def forward(self, x: Tensor) -> Forward:
        """Predict with the statistics of the batch."""
        with batch_statistics(self.network):
            return super().forward(x)

    def adapt(self, x: Tensor, out: Forward, verdict: Verdict) -> None:
        """Take one step on the mean entropy."""
        logits = out.logits[verdict.weak] if self.prune else out.logits
        if len(logits):
            self.descend(entropy(logits).mean())
