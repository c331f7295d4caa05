"""Groups among rejected samples: HDBSCAN of their unit features, which says how many there are, and what is in none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from owttt._utils.optional import require
from owttt.triage.store import Reject

ALONE: Final = -1
"""The number of what is in no group."""
LEAST: Final = 5
"""Samples that a group has."""
COMPONENTS: Final = 16
"""Principal components that distances are taken in: in hundreds of dimensions everything is equally far."""


def clustered(rejects: Sequence[Reject], least: int = LEAST) -> dict[int, list[Reject]]:
    """Return the groups by number, the largest first and those most typical of a group first; -1 is what is in none."""
    if len(rejects) < 2 * least:
        return {ALONE: list(rejects)} if rejects else {}
    features = np.stack([one.features for one in rejects]).astype(np.float64)
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    labels = _labels(_principal(unit), least)
    groups = {number: np.flatnonzero(labels == number) for number in np.unique(labels)}
    ordered = sorted(groups, key=lambda number: (number == ALONE, -len(groups[number])))
    names = {number: ALONE if number == ALONE else place for place, number in enumerate(ordered)}
    return {names[number]: _typical_first(rejects, unit, groups[number]) for number in ordered}


def _principal(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the coordinates along the directions in which samples differ most."""
    centered = unit - unit.mean(axis=0)
    _, _, directions = np.linalg.svd(centered, full_matrices=False)
    coordinates: NDArray[np.float64] = centered @ directions[:COMPONENTS].T
    return coordinates


def _labels(points: NDArray[np.float64], least: int) -> NDArray[np.int64]:
    cluster = require("sklearn.cluster", "Clusters", extra="triage")
    size = max(least, len(points) // 50)
    found = cluster.HDBSCAN(min_cluster_size=size, min_samples=least, copy=True).fit_predict(points)
    labels: NDArray[np.int64] = np.asarray(found, dtype=np.int64)
    return labels


def _typical_first(rejects: Sequence[Reject], unit: NDArray[np.float64], places: NDArray[np.int64]) -> list[Reject]:
    away = unit[places] @ unit[places].mean(axis=0)
    return [rejects[place] for place in places[np.argsort(-away, kind="stable")]]
