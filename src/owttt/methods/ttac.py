"""TTAC: test-time anchored clustering (Su et al., NeurIPS 2022), one pass without its sample queue.

    s·D(N_s, N_t)  +  s/K·Σ_k D(N_s^k, N_t^k),     D = KL(s‖t) + KL(t‖s)

over running Gaussians, of all samples and of each class, a class taking the samples predicted with confidence > 0.9.
Classes of this batch count once 16 samples were seen. ImageNet's form: class variances only, no 1/K, a memory of 64,
and the source's Gaussian counting as the first 64 samples (`class_prior`), so that the first confident one is already
more than 64.

`max_norm` cuts the gradient and is ours: far above what a trained network gives, it keeps one whose features are
nothing like the source's from diverging in a batch.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from owttt._utils.queue import Statistics
from owttt.functional import (
    Gaussian,
    add_ridge,
    full_precision,
    inverse,
    ridge,
    running_gaussian,
    symmetric_kl,
    symmetric_kl_diagonal,
    wide,
    widest,
)
from owttt.methods.alignment import GlobalAlignment
from owttt.methods.backbone import BackboneMethod
from owttt.source import SourceStats
from owttt.types import Forward


@final
class TTAC(BackboneMethod):
    """Align all features and each class with the source."""

    name = "ttac"
    cost = 4.5
    color = "#3f7fbf"

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
        class_prior: int = 0,
        average_classes: bool = True,
        max_norm: float | None = 100.0,
        prune: bool = False,
    ) -> None:
        super().__init__(lr=lr, momentum=momentum, max_norm=max_norm, prune=prune)
        self.scale = scale
        self.confidence = confidence
        self.horizon = horizon
        self.class_horizon = class_horizon
        self.class_minimum = class_minimum
        self.class_prior = class_prior
        self.average_classes = average_classes

    def setup(self) -> None:
        """Train the backbone; start the running Gaussians at the source's."""
        super().setup()
        self.all = GlobalAlignment(self.source, self.horizon)
        self.classes = ClassAlignment(self.source, self.class_horizon, self.class_minimum, self.class_prior)

    def loss(self, out: Forward) -> Tensor:
        """Return the distance of all features, and of the classes of confident samples."""
        confidence, label = wide(out.logits.detach()).softmax(dim=1).max(dim=1)
        sure = confidence > self.confidence
        class_scale = self.scale / self.source.num_classes if self.average_classes else self.scale
        everything: Tensor = self.all(out.features)
        classes: Tensor = self.classes(out.features[sure], label[sure])
        return self.scale * everything + class_scale * classes


@final
class ClassAlignment(Statistics):
    """The sum over classes of KL(s‖t) + KL(t‖s), with a running Gaussian for each class, in double precision."""

    means: Tensor
    covariances: Tensor
    seen: Tensor
    source_means: Tensor
    source_covariances: Tensor
    source_inverses: Tensor | None
    ridge: Tensor

    def __init__(self, source: SourceStats, horizon: int, minimum: int, prior: int) -> None:
        super().__init__()
        self.horizon = horizon
        self.minimum = minimum
        self.diagonal = source.diagonal
        exact = widest(source.mean.device)
        means, covariances = source.class_means.to(exact), source.class_covariances.to(exact)
        self.register_buffer("ridge", ridge(source.covariance.to(exact)), persistent=False)
        ridged = self._ridged(covariances)
        self.register_buffer("means", means.clone())
        self.register_buffer("covariances", covariances.clone())
        self.register_buffer("seen", torch.full((len(means),), prior, device=means.device))
        self.register_buffer("source_means", means, persistent=False)
        self.register_buffer("source_covariances", ridged, persistent=False)
        self.register_buffer("source_inverses", None if self.diagonal else inverse(ridged), persistent=False)

    def _ridged(self, covariances: Tensor) -> Tensor:
        return covariances + self.ridge if self.diagonal else add_ridge(covariances, self.ridge)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Move the Gaussians of the classes in this batch and return the sum of their distances."""
        features = features.to(self.means.dtype)
        with full_precision(features.device):
            total = features.new_zeros(())
            for label in torch.unique(labels).tolist():
                members = features[labels == label]
                self.seen[label] += len(members)
                target = self._move(label, members)
                if self.seen[label] >= self.minimum:
                    total = total + self._distance(label, target)
            return total

    def _move(self, label: int, features: Tensor) -> Gaussian:
        state = Gaussian(self.means[label].clone(), self.covariances[label].clone())
        target = running_gaussian(state, features, self.seen[label], self.horizon, self.diagonal)
        self.means[label] = target.mean.detach()
        self.covariances[label] = target.covariance.detach()
        return target

    def _distance(self, label: int, target: Gaussian) -> Tensor:
        source = Gaussian(self.source_means[label], self.source_covariances[label])
        target = Gaussian(target.mean, self._ridged(target.covariance))
        if self.source_inverses is None:
            return symmetric_kl_diagonal(source, target)
        return symmetric_kl(source, self.source_inverses[label], target)
