"""The strong-OOD prototype pool: which samples of a batch become prototypes, and which train on them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt.functional.thresholds import otsu_threshold


def kept(scores: Tensor, group: Tensor, rate: float, *, highest: bool) -> Tensor:
    """Return the indices of the `rate` share of a group with the lowest (or highest) scores, at least one if any.

    Far from the threshold is where pseudo labels are right.
    """
    members = group.nonzero().squeeze(1)
    number = max(1, int(len(members) * rate))
    order = scores[members].sort(stable=True, descending=highest).indices
    return members[order[:number]]


def expansion_threshold(extended: Tensor, *, weighted: bool = True) -> Tensor:
    """Return τ~, the split of the strong samples' extended scores into covered and isolated ones.

    Where nothing splits them, they are equally new: the multiple of .01 below the least one lets the first in, and
    each one let in then covers its neighbors.
    """
    split = otsu_threshold(extended, weighted=weighted)
    return torch.where(split.isinf(), (extended.amin() * 100).floor() / 100, split)


def isolated_samples(
    scores: Tensor,
    unit: Tensor,
    known_similarity: Tensor,
    pool: Tensor,
    capacity: int,
    threshold: Tensor,
    split: Tensor,
) -> list[int]:
    """Choose greedily, largest score first, the samples that no prototype covers; return their indices in order.

    A sample is visited while its score is above τ* (`threshold`) and taken if `1 - max cos` to the source prototypes
    and to the pool *as it is then* is above τ~ (`split`). The pool is a queue: beyond `capacity` the oldest leaves.

    `unit` `(n, D)` are unit features, `known_similarity` `(n,)` their largest cosine to the source prototypes, `pool`
    `(q, D)` unit prototypes, oldest first. All cosines are computed once; a visit only looks them up.
    """
    order = scores.sort(stable=True, descending=True).indices
    order = order[scores[order] > threshold]
    columns = torch.cat((pool, unit[order]))
    cosines = (unit[order] @ columns.T).cpu().numpy()
    nearest_known = known_similarity[order].tolist()
    limit = float(split)

    members = list(range(len(pool)))
    taken: list[int] = []
    for visit, known in enumerate(nearest_known):
        nearest = cosines[visit, members].max() if members else -math.inf
        if 1 - max(known, nearest) > limit:
            taken.append(visit)
            members = [*members, len(pool) + visit][-capacity:]
    return [int(index) for index in order[torch.tensor(taken, dtype=torch.long, device=order.device)]]


def follow(pool: Tensor, unit: Tensor, momentum: float) -> Tensor:
    """Return the pool after every unit feature, in order, has moved its nearest prototype: p ← (1 - δ)p + δz.

    Which is nearest is decided by the pool as it was; prototypes are brought back to unit length at the end.
    """
    nearest = F.one_hot((unit @ pool.T).argmax(dim=1), len(pool)).to(unit.dtype)
    later = nearest.flip(0).cumsum(dim=0).flip(0) - nearest
    weights = nearest * momentum * (1 - momentum) ** later
    stayed = (1 - momentum) ** nearest.sum(dim=0)
    return F.normalize(weights.T @ unit + stayed[:, None] * pool, dim=1)
