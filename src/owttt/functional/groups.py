"""Two groups of points: 2-means (Lloyd, 1982), started from the principal axes, so that the result is reproducible."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from owttt.functional.precision import wide

AXES: Final = 3
"""Principal axes along which a start is made."""
ROUNDS: Final = 30
"""Rounds after which a start is taken as it is."""


def two_groups(points: Tensor) -> Tensor:
    """Return which points `(N, d)` belong to the second of two groups, `(N,)` bool.

    Each start parts the points at their mean along a principal axis; points then go to the nearer of both means until
    none changes. Of the starts the one with the least squared distance to the means counts. Points
    that are all alike are one group.
    """
    centered = wide(points) - wide(points).mean(dim=0)
    axes = torch.linalg.svd(centered, full_matrices=False).Vh[:AXES]
    best, least = torch.zeros(len(points), dtype=torch.bool, device=points.device), centered.square().sum()
    for axis in axes:
        second = _settled(centered, centered @ axis > 0)
        if second is None:
            continue
        spread = sum(
            ((part - part.mean(dim=0)).square().sum() for part in (centered[second], centered[~second])), least * 0
        )
        if spread < least:
            best, least = second, spread
    return best


def _settled(points: Tensor, second: Tensor) -> Tensor | None:
    """Move points to the nearer mean until none moves; None if a group runs empty."""
    for _ in range(ROUNDS):
        if not second.any() or second.all():
            return None
        one, two = points[~second].mean(dim=0), points[second].mean(dim=0)
        nearer = (points - two).square().sum(dim=1) < (points - one).square().sum(dim=1)
        if bool((nearer == second).all()):
            return second
        second = nearer
    return second if second.any() and not second.all() else None
