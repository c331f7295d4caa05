"""TENT: fully test-time adaptation by entropy minimization (Wang et al., ICLR 2021).

    min over scale and shift of the normalization layers of  mean_i H(softmax(l_i)),  with batch statistics

The loss is taken on the very forward pass that predicted: one forward, one backward a batch. Adam 1e-3 on CIFAR, SGD
2.5e-4 with momentum 0.9 on ImageNet.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import Tensor, nn

from owttt.functional import entropy
from owttt.methods.base import Method
from owttt.network.norm import affine_parameters, batch_statistics, keep_group_norm_alive
from owttt.types import Forward, Verdict


@final
class Tent(Method):
    """Minimise entropy over normalization scales and shifts; `prune` leaves rejected samples out of the loss."""

    name = "tent"
    cost = 2.7
    color = "#e0a43b"

    def __init__(
        self,
        *,
        lr: float = 1e-3,
        optim: Literal["adam", "sgd"] = "adam",
        momentum: float = 0.9,
        prune: bool = False,
    ) -> None:
        super().__init__()
        if optim not in ("adam", "sgd"):
            raise ValueError(f"optim must be 'adam' or 'sgd', got {optim!r}.")
        self.lr = lr
        self.optim = optim
        self.momentum = momentum
        self.prune = prune

    def setup(self) -> None:
        """Give the affine parameters their optimizer; refuse a network that has none."""
        parameters = affine_parameters(self.network)
        if not parameters:
            raise ValueError(
                "Method 'tent' trains the scale and shift of normalization layers and this network has none; use "
                "'owttt+', which trains nothing, or 'owttt', 'ttac', 'shot', 'ttt++', which train the whole backbone."
            )
        self.optimize(parameters, self._make)
        keep_group_norm_alive(self.network)

    def _make(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if self.optim == "adam":
            eps = max(1e-8, torch.finfo(parameters[0].dtype).tiny)
            return torch.optim.Adam(parameters, lr=self.lr, eps=eps)
        return torch.optim.SGD(parameters, lr=self.lr, momentum=self.momentum)

    @property
    def backpropagates(self) -> bool:
        """The loss is on the logits of the prediction itself."""
        return True

    def forward(self, x: Tensor) -> Forward:
        """Predict with the statistics of the batch."""
        with batch_statistics(self.network, self.batch_share(len(x))):
            return super().forward(x)

    def adapt(self, x: Tensor, out: Forward, verdict: Verdict) -> None:
        """Take one step on the mean entropy."""
        logits = out.logits[verdict.known] if self.prune else out.logits
        if len(logits):
            self.descend(entropy(logits).mean())
