"""The running Gaussian of target features and its distance to the source's, shared by TTAC and OWTTT."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from owttt.functional import Gaussian, add_ridge, full_precision, ridge, running_gaussian, symmetric_kl, wide
from owttt.source import SourceStats


@final
class GlobalAlignment(nn.Module):
    """KL(s‖t) + KL(t‖s) between the source's Gaussian and a running one of the target (TTAC, Su et al., NeurIPS 2022).

    Both covariances get a ridge max(Σ_s)/30·I. The source is inverted once.
    """

    mean: Tensor
    covariance: Tensor
    seen: Tensor
    inverse: Tensor

    def __init__(self, source: SourceStats, horizon: int) -> None:
        super().__init__()
        self.source = source
        self.horizon = horizon
        self.register_buffer("mean", source.mean.clone())
        self.register_buffer("covariance", source.covariance.clone())
        self.register_buffer("seen", torch.zeros((), dtype=torch.long, device=source.mean.device))
        ridged = add_ridge(source.covariance, ridge(source.covariance))
        self.register_buffer("inverse", torch.cholesky_inverse(torch.linalg.cholesky(ridged)), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Move the running Gaussian by a batch and return its distance, differentiable in the batch."""
        source, features = self.source, wide(features)
        with full_precision(features.device):
            self.seen += len(features)
            target = running_gaussian(Gaussian(self.mean, self.covariance), features, self.seen, self.horizon)
            self.mean.copy_(target.mean.detach())
            self.covariance.copy_(target.covariance.detach())
            amount = ridge(source.covariance)
            return symmetric_kl(
                Gaussian(source.mean, add_ridge(source.covariance, amount)),
                self.inverse,
                Gaussian(target.mean, add_ridge(target.covariance, amount)),
            )
