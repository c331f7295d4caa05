"""Two groups of points equal a literal mixture of two Gaussians."""

import pytest
import torch

from owttt.functional import two_groups
from tests import reference


def drawn(shape, seed):
    points = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    points[: shape[0] // 3] = 0.3 * points[: shape[0] // 3] + 1
    return points


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [(40, 5), (12, 20), (60, 1)], ids=str)
def test_equals_the_literal_one(shape, seed):
    points = drawn(shape, seed)
    mine, theirs = two_groups(points), torch.tensor(reference.two_groups(list(points)))
    assert mine.shape == theirs.shape
    assert bool((((mine == theirs).all(dim=1)) | ((mine != theirs).all(dim=1))).all()), "the same ways, in order"


def test_two_clouds_are_told_apart():
    points = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    points[50:] += 4
    second = two_groups(points)[0]
    assert len(set(second[:50].tolist())) == len(set(second[50:].tolist())) == 1
    assert second[0] != second[-1]


def test_a_tight_group_inside_a_wide_one_is_found():
    """Where the nearest of two means would cut both in halves."""
    points = torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
    points[:40] = 0.02 * points[:40] + 0.1
    second = two_groups(points)[0]
    tight = second if second[0] else ~second
    assert tight[:40].all()
    assert tight[40:].sum() <= 8


@pytest.mark.parametrize(
    "points", [torch.ones(9, 3), torch.zeros(1, 4), torch.randn(7, 2)], ids=["alike", "one", "few"]
)
def test_where_there_are_no_two_groups(points):
    assert two_groups(points).shape == (0, len(points))
