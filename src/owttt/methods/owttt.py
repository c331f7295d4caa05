"""OWTTT: open-world test-time training with dynamic prototype expansion (Li et al., ICCV 2023).

One batch, with unit source prototypes P_s and a queue P_n of strong prototypes that starts empty:

1. expansion   Strong samples, largest score first, join P_n if 1 - max cos to P_s ∪ P_n is above τ~, the threshold of
               these extended scores.
2. clustering  Of the weak samples the half with the lowest scores is pulled to its nearest source prototype (K-way
               cross entropy of cos/δ), of the strong ones the half with the highest to its nearest strong prototype,
               away from P_s (K+1-way). L_PC is the sum of both means.
3. alignment   L_KLD = ½(KL(s‖t) + KL(t‖s)) between the Gaussian of source features and a running one of weak samples,
               whose forward pass also moves the BatchNorm statistics.
4. update      One SGD step on L_PC + λ·L_KLD over the backbone.

For point clouds the paper (its appendix) scores samples by the pool too, `pool_score`, and lets the pool follow the
stream, `pool_momentum` δ: a strong sample z that does not join moves its nearest prototype, p ← (1 - δ)p + δz.

In the authors' order (adapt-then-predict) the loss sees the pool as it was before step 1, so that a new prototype acts
one batch late and there is no clustering while the pool is empty.
"""

from __future__ import annotations

from typing import Final, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt._utils.queue import Queue
from owttt.detector import NamedScore
from owttt.functional import (
    cosine_similarity,
    expansion_threshold,
    follow,
    full_precision,
    isolated_samples,
    kept,
    known_clustering,
    pool_score,
    unknown_clustering,
    wide,
)
from owttt.methods.alignment import GlobalAlignment
from owttt.methods.base import Method
from owttt.network.norm import moving_statistics
from owttt.source import SourceStats
from owttt.types import ADAPT_THEN_PREDICT, Forward, Verdict

Clustering = Literal["off", "source", "extended"]
CLUSTERINGS: Final = ("off", "source", "extended")
FEW: Final = 16
"""On rails, rejected samples that are less than one in so many are no group: they would weigh as much as all others."""


@final
class OWTTT(Method):
    """The paper's method; each part is an option, so that every row of its ablation is one call.

    `clustering`: "extended" on P_s ∪ P_n, "source" on P_s only, "off". `expansion`, `alignment`: parts on or off.
    `lr` is α, `alignment_weight` λ, `temperature` δ, `pool_size` N_q, `keep_rate` the share of each group that trains,
    `horizon` the memory of the running Gaussian in samples. `max_norm` cuts the gradient and is ours: far above what a
    trained network gives, it keeps one whose features are nothing like the source's from diverging in a batch.
    `weighted` is the form of τ~, as "adaptive" and "adaptive-unweighted" are of the adapter's threshold. `pool_score`
    replaces the adapter's score by OS' (see `functional.pool_score`); `pool_momentum` is 0 for a pool that stays as it
    is.
    """

    name = "owttt"
    cost = 4.4
    color = "#d6432f"

    def __init__(
        self,
        *,
        lr: float = 1e-3,
        momentum: float = 0.9,
        alignment_weight: float = 1.0,
        clustering: Clustering = "extended",
        expansion: bool = True,
        alignment: bool = True,
        keep_rate: float = 0.5,
        pool_size: int = 100,
        temperature: float = 0.1,
        horizon: int = 1280,
        max_norm: float | None = 1000.0,
        weighted: bool = True,
        pool_score: bool = False,
        pool_momentum: float = 0.0,
    ) -> None:
        super().__init__()
        if clustering not in CLUSTERINGS:
            raise ValueError(f"clustering must be one of {CLUSTERINGS}, got {clustering!r}.")
        if not 0 < keep_rate <= 1:
            raise ValueError(f"keep_rate is a share above 0 and up to 1, got {keep_rate}.")
        if not 0 <= pool_momentum <= 1:
            raise ValueError(f"pool_momentum is a share from 0 to 1, got {pool_momentum}.")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}.")
        self.lr = lr
        self.momentum = momentum
        self.alignment_weight = alignment_weight
        self.clustering = clustering
        self.expansion = expansion
        self.alignment = alignment
        self.keep_rate = keep_rate
        self.pool_size = pool_size
        self.temperature = temperature
        self.horizon = horizon
        self.max_norm = max_norm
        self.weighted = weighted
        self.pool_score = pool_score
        self.pool_momentum = pool_momentum

    def setup(self) -> None:
        """Train the backbone; start with an empty pool and the source's Gaussian."""
        self.optimize_backbone(self.lr, self.momentum)
        self.pool = Queue(self.pool_size, self.source.mean.shape, self.source.mean)
        self.target = GlobalAlignment(self.source, self.horizon)
        self.delayed = self.order == ADAPT_THEN_PREDICT

    @property
    def backpropagates(self) -> bool:
        """Whether every sample trains, so that the prediction's own graph serves the clustering loss."""
        return self.clustering == "extended" and self.keep_rate == 1

    def watch(self) -> dict[str, float]:
        """Return the number of strong prototypes."""
        return {"pool": len(self.pool.values)}

    @property
    def own_score(self) -> NamedScore | None:
        """OS', if it is asked for."""
        if not self.pool_score:
            return None
        return NamedScore("pool", self._pool_score, unit=True, way_out="pool_score=False", like="cosine")

    def _pool_score(self, out: Forward, source: SourceStats) -> Tensor:
        return pool_score(out.features, source.prototypes, self.pool.values)

    def adapt(self, x: Tensor, out: Forward, verdict: Verdict) -> None:
        """Expand the pool, then take one step on both losses.

        Clustering is backpropagated before the alignment pass moves the BatchNorm statistics its graph depends on.
        """
        before = self.pool.values.clone()
        few = self.on_rails and int(verdict.unknown.sum()) * FEW < len(x)
        if self.expansion and verdict.unknown.any() and not few:
            self._expand(out, verdict)
        pool = before if self.delayed else self.pool.values
        self.network.zero_grad()
        clustered = self._cluster(x, out, verdict, pool[:0] if few else pool)
        aligned = self._align(x[verdict.known])
        if clustered or aligned:
            self.step(self.max_norm)

    def _expand(self, out: Forward, verdict: Verdict) -> None:
        nearest_known = out.cosines(self.source.prototypes)[verdict.unknown].amax(dim=1)
        with full_precision(out.features.device):
            unit = F.normalize(wide(out.features.detach()[verdict.unknown]), dim=1)
            pool = self.pool.values
            extended = 1 - torch.cat((nearest_known[:, None], unit @ pool.T), dim=1).amax(dim=1)
            split = expansion_threshold(extended, weighted=self.weighted)
            scores = verdict.scores[verdict.unknown]
            chosen = isolated_samples(scores, unit, nearest_known, pool, self.pool_size, verdict.threshold, split)
            if self.pool_momentum and len(pool):
                stays = torch.ones(len(unit), dtype=torch.bool, device=unit.device)
                stays[chosen] = False
                moved = follow(pool, unit[stays], self.pool_momentum)
                self.pool.items[: len(moved)] = moved.to(self.pool.items.dtype)
            self.pool.push(unit[chosen])

    def _cluster(self, x: Tensor, out: Forward, verdict: Verdict, pool: Tensor) -> bool:
        """Backpropagate the clustering loss through the samples it uses, and say whether there were any."""
        if self.clustering == "off" or (self.delayed and self.clustering == "extended" and not len(pool)):
            return False
        known = kept(verdict.scores, verdict.known, self.keep_rate, highest=False)
        unknown = kept(verdict.scores, verdict.unknown, self.keep_rate, highest=True)
        if self.clustering == "source" or not len(pool):
            unknown = unknown[:0]
        chosen = torch.cat((known, unknown))
        if not len(chosen):
            return False
        whole = self.backpropagates and len(chosen) == len(x)
        features = out.features[chosen] if whole else self.network(x[chosen]).features
        similarity = cosine_similarity(features, self.source.prototypes)
        loss = similarity.new_zeros(())
        if len(known):
            loss = loss + known_clustering(similarity[: len(known)], self.temperature)
        if len(unknown):
            nearest = cosine_similarity(features[len(known) :], pool).amax(dim=1)
            loss = loss + unknown_clustering(similarity[len(known) :], nearest, self.temperature)
        torch.autograd.backward(loss)
        return True

    def _align(self, x: Tensor) -> bool:
        """Backpropagate the alignment loss of the weak samples, and say whether there were any."""
        if not self.alignment or not len(x):
            return False
        with moving_statistics(self.network, self.pace):
            features = self.network(x).features
        loss = self.alignment_weight / 2 * self.target(features)
        torch.autograd.backward(loss)
        return True
