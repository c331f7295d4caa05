"""Two groups of points equal a literal 2-means."""

import pytest
import torch

from owttt.functional import two_groups
from tests import reference


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", [(40, 5), (9, 12), (60, 1), (2, 3)], ids=str)
def test_equals_the_literal_one(shape, seed):
    points = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    points[: shape[0] // 3] += 1.5
    mine, theirs = two_groups(points), torch.tensor(reference.two_groups(list(points)))
    assert bool((mine == theirs).all()) or bool((mine != theirs).all()), "the same two groups"
    assert mine.any()
    assert not mine.all()


def test_two_clouds_are_told_apart():
    points = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    points[50:] += 4
    second = two_groups(points)
    assert len(set(second[:50].tolist())) == len(set(second[50:].tolist())) == 1
    assert second[0] != second[-1]


@pytest.mark.parametrize("points", [torch.ones(7, 3), torch.zeros(1, 4)], ids=["alike", "one"])
def test_points_that_are_alike_are_one_group(points):
    assert not two_groups(points).any()
