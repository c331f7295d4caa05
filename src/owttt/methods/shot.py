"""SHOT, one pass: source hypothesis transfer (Liang et al., ICML 2020).

    min over the backbone, head fixed, of  w·[mean_i H(p_i) - H(p̄)]  +  β·mean_i CE(l_i, ŷ_i)

ŷ_i are labels of the nearest class centroid of the batch: centroids weighted by p, then once more by those labels.
The weight w is 0.05 on CIFAR-10 and 0.5 on CIFAR-100 with β = 0, as in TTAC's comparison; the original has w = 1 and
β = 0.3.
"""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt.functional import cosine_similarity, information_maximization, wide
from owttt.methods.backbone import BackboneMethod
from owttt.types import Forward


@final
class Shot(BackboneMethod):
    """Certain on each sample, diverse over the batch."""

    name = "shot"
    cost = 4.9
    color = "#5aa469"

    def __init__(
        self,
        *,
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight: float = 0.05,
        pseudo_weight: float = 0.0,
        max_norm: float | None = None,
        prune: bool = False,
    ) -> None:
        super().__init__(lr=lr, momentum=momentum, max_norm=max_norm, prune=prune)
        self.weight = weight
        self.pseudo_weight = pseudo_weight

    def loss(self, out: Forward) -> Tensor:
        """Return entropy minus diversity, and the cross entropy to pseudo labels if it has a weight."""
        loss = self.weight * information_maximization(out.logits)
        if self.pseudo_weight:
            labels = centroid_labels(out.features.detach(), out.logits.detach())
            loss = loss + self.pseudo_weight * F.cross_entropy(wide(out.logits), labels)
        return loss


def centroid_labels(features: Tensor, logits: Tensor) -> Tensor:
    """Return the nearest class centroid of each feature by cosine, centroids being estimated twice.

    Features get a constant 1 appended and unit length, as in the original; classes nobody is nearest to after the first
    round are out of the second.
    """
    unit = F.normalize(F.pad(wide(features), (0, 1), value=1.0), dim=1)
    labels = _nearest(unit, wide(logits).softmax(dim=1))
    return _nearest(unit, F.one_hot(labels, logits.shape[1]).to(unit.dtype))


def _nearest(unit: Tensor, membership: Tensor) -> Tensor:
    centroids = F.normalize(membership.T @ unit, dim=1)
    similarity = cosine_similarity(unit, centroids)
    empty = membership.sum(dim=0) == 0
    return similarity.masked_fill(empty, -torch.inf).argmax(dim=1)
