"""The running Gaussian of target features and its distance to the source's, shared by TTAC and OWTTT."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from owttt._utils.queue import Statistics
from owttt.functional import Gaussian, add_ridge, alignment, full_precision, inverse, ridge, widest
from owttt.source import SourceStats


@final
class GlobalAlignment(Statistics):
    """KL(s‖t) + KL(t‖s) between the source's Gaussian and a running one of the target (TTAC, Su et al., NeurIPS 2022).

    Both covariances get a ridge max(Σ_s)/30·I. The source is inverted once. Everything here is in double precision
    where the device has it: a covariance of few samples in many dimensions has only the ridge to stand on.
    """

    mean: Tensor
    covariance: Tensor
    seen: Tensor
    source_mean: Tensor
    source_covariance: Tensor
    source_inverse: Tensor
    ridge: Tensor

    def __init__(self, source: SourceStats, horizon: int) -> None:
        super().__init__()
        self.horizon = horizon
        exact = widest(source.mean.device)
        mean, covariance = source.mean.to(exact), source.covariance.to(exact)
        ridged = add_ridge(covariance, ridge(covariance))
        self.register_buffer("mean", mean.clone())
        self.register_buffer("covariance", covariance.clone())
        self.register_buffer("seen", torch.zeros((), dtype=torch.long, device=mean.device))
        self.register_buffer("source_mean", mean, persistent=False)
        self.register_buffer("source_covariance", ridged, persistent=False)
        self.register_buffer("source_inverse", inverse(ridged), persistent=False)
        self.register_buffer("ridge", ridge(covariance), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Move the running Gaussian by a batch and return its distance, differentiable in the batch."""
        features = features.to(self.mean.dtype)
        with full_precision(features.device):
            seen = self.seen + len(features)
            now = Gaussian(self.mean, self.covariance)
            source = Gaussian(self.source_mean, self.source_covariance)
            distance, target = alignment(features, now, seen, self.horizon, source, self.source_inverse, self.ridge)
        self.mean, self.covariance, self.seen = target.mean, target.covariance, seen
        return distance
