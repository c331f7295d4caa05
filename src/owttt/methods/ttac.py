"""TTAC: test-time anchored clustering (Su et al., NeurIPS 2022), one pass without its sample queue.

    s·D(N_s, N_t)  +  s/K·Σ_k D(N_s^k, N_t^k),     D = KL(s‖t) + KL(t‖s)

over running Gaussians, of all samples and of each class, a class taking the samples predicted with confidence > 0.9.
Classes of this batch count once 16 samples were seen. ImageNet's form: class variances only, from more than 64
samples, and no 1/K.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from owttt.functional import (
    Gaussian,
    add_ridge,
    full_precision,
    ridge,
    running_gaussian,
    symmetric_kl,
    symmetric_kl_diagonal,
    wide,
)
from owttt.method import Method
from owttt.methods.alignment import GlobalAlignment
from owttt.norm import moving_statistics
from owttt.source import SourceStats
from owttt.types import Forward, Verdict


@final
class TTAC(Method):
    """Align all features and each class with the source; `prune` leaves rejected samples out."""

    name = "ttac"

    def __init__(
        self,
        *,
        lr: float = 1e-2,
        momentum: float = 0.9,
        scale: float = 0.05,
        confidence: float = 0.9,
        horizon: int = 1280,
        class_horizon: int = 128,
        class_minimum: int = 16,
        average_classes: bool = True,
        prune: bool = False,
    ) -> None:
        super().__init__()
        self.lr = lr
        self.momentum = momentum
        self.scale = scale
        self.confidence = confidence
        self.horizon = horizon
        self.class_horizon = class_horizon
        self.class_minimum = class_minimum
        self.average_classes = average_classes
        self.prune = prune

    def setup(self) -> None:
        """Train the backbone; start the running Gaussians at the source's."""
        self.optimise_backbone(self.lr, self.momentum)
        self.all = GlobalAlignment(self.source, self.horizon)
        self.classes = ClassAlignment(self.source, self.class_horizon, self.class_minimum)

    def adapt(self, x: Tensor, out: Forward, verdict: Verdict) -> None:
        """Take one step, with BatchNorm in train mode."""
        x = x[verdict.weak] if self.prune else x
        if not len(x):
            return
        with moving_statistics(self.network):
            now = self.network(x)
        confidence, label = wide(now.logits.detach()).softmax(dim=1).max(dim=1)
        sure = confidence > self.confidence
        class_scale = self.scale / self.source.num_classes if self.average_classes else self.scale
        loss = self.scale * self.all(now.features)
        self.descend(loss + class_scale * self.classes(now.features[sure], label[sure]))


@final
class ClassAlignment(nn.Module):
    """The sum over classes of KL(s‖t) + KL(t‖s), with a running Gaussian for each class."""

    means: Tensor
    covariances: Tensor
    seen: Tensor
    source_covariances: Tensor
    inverses: Tensor

    def __init__(self, source: SourceStats, horizon: int, minimum: int) -> None:
        super().__init__()
        self.source = source
        self.horizon = horizon
        self.minimum = minimum
        self.register_buffer("means", source.class_means.clone())
        self.register_buffer("covariances", source.class_covariances.clone())
        self.register_buffer("seen", torch.zeros(source.num_classes, dtype=torch.long, device=source.mean.device))
        ridged = self._ridged(source.class_covariances)
        self.register_buffer("source_covariances", ridged, persistent=False)
        inverses = 1 / ridged if source.diagonal else torch.cholesky_inverse(torch.linalg.cholesky(ridged))
        self.register_buffer("inverses", inverses, persistent=False)

    def _ridged(self, covariances: Tensor) -> Tensor:
        amount = ridge(self.source.covariance)
        return covariances + amount if self.source.diagonal else add_ridge(covariances, amount)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Move the Gaussians of the classes in this batch and return the sum of their distances."""
        features = wide(features)
        with full_precision(features.device):
            total = features.sum() * 0
            for label in torch.unique(labels).tolist():
                members = features[labels == label]
                self.seen[label] += len(members)
                target = self._move(label, members)
                if self.seen[label] >= self.minimum:
                    total = total + self._distance(label, target)
            return total

    def _move(self, label: int, features: Tensor) -> Gaussian:
        state = Gaussian(self.means[label].clone(), self.covariances[label].clone())
        target = running_gaussian(state, features, self.seen[label], self.horizon, self.source.diagonal)
        self.means[label] = target.mean.detach()
        self.covariances[label] = target.covariance.detach()
        return target

    def _distance(self, label: int, target: Gaussian) -> Tensor:
        source = Gaussian(self.source.class_means[label], self.source_covariances[label])
        target = Gaussian(target.mean, self._ridged(target.covariance))
        if self.source.diagonal:
            return symmetric_kl_diagonal(source, target)
        return symmetric_kl(source, self.inverses[label], target)
