import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owttt.functional import otsu_threshold
from tests import reference

SETTINGS = settings(max_examples=400, deadline=None, derandomize=True)
tenths = st.integers(0, 1000).map(lambda i: i / 1000)
coarse = st.sampled_from([0.0, 0.01, 0.1, 0.29, 0.3, 0.5, 0.57, 0.58, 0.99, 1.0])
anywhere = st.integers(-4000, 4000).map(lambda i: i / 64)


def mine(scores, weighted=True, unit=True):
    return float(otsu_threshold(torch.tensor(scores, dtype=torch.float64), weighted=weighted, unit=unit))


@SETTINGS
@given(st.lists(tenths, min_size=1, max_size=24), st.booleans())
def test_equals_the_exact_loop_on_the_unit_interval(scores, weighted):
    assert mine(scores, weighted) == reference.threshold(scores, weighted, exact=True)


@SETTINGS
@given(st.lists(coarse, min_size=1, max_size=12), st.booleans())
def test_equals_the_exact_loop_on_ties_and_grid_points(scores, weighted):
    assert mine(scores, weighted) == reference.threshold(scores, weighted, exact=True)


@SETTINGS
@given(st.lists(anywhere, min_size=1, max_size=24), st.booleans())
def test_equals_the_exact_loop_on_any_range(scores, weighted):
    assert mine(scores, weighted, unit=False) == reference.threshold(scores, weighted, exact=True, unit=False)


@SETTINGS
@given(st.lists(st.integers(0, 2000).map(lambda i: i / 1000), min_size=1, max_size=24), st.booleans())
def test_equals_the_exact_loop_beyond_one(scores, weighted):
    assert mine(scores, weighted) == reference.threshold(scores, weighted, exact=True)


def windows():
    random = np.random.default_rng(0)
    for trial in range(1500):
        n = int(random.integers(1, 513))
        share = random.random()
        modes = np.sort(random.random(2))
        scores = np.where(random.random(n) < share, *random.normal(modes[:, None], random.random() * 0.2, (2, n)))
        yield trial, np.clip(scores, 0, 1) if trial % 3 else scores * 10 - 3


def literal_numpy(scores, weighted, unit):
    """The authors' loop, 100 passes of numpy; the reference for windows too long for fractions."""
    best, least = math.inf, math.inf
    for tau in reference.candidates(scores.tolist(), unit):
        below, above = scores[scores < tau], scores[scores >= tau]
        if len(below) and len(above):
            share = len(below) / len(scores)
            cost = share * below.var() + (1 - share) * above.var() if weighted else below.var() + above.var()
            if cost < least * (1 - 1e-12):
                best, least = tau, cost
    return best


@pytest.mark.parametrize("weighted", [True, False])
def test_equals_the_literal_loop_on_random_windows(weighted):
    for trial, scores in windows():
        unit = bool(trial % 3)
        found = mine(scores.tolist(), weighted, unit)
        assert found == pytest.approx(literal_numpy(scores, weighted, unit), abs=1e-12), trial


@pytest.mark.parametrize("scores", [[0.3], [0.3] * 50, [0.301, 0.305, 0.309], [1.0] * 9, [0.0] * 3, [1.5] * 4, [-7.0]])
@pytest.mark.parametrize("weighted", [True, False])
def test_what_cannot_be_split_rejects_nothing(scores, weighted):
    assert mine(scores, weighted) == math.inf
    if len(set(scores)) == 1:
        assert mine(scores, weighted, unit=False) == math.inf


def test_scores_beyond_one_are_split_all_the_same():
    tau = mine([1.1, 1.12, 1.15, 1.6, 1.65])
    assert 1.15 < tau <= 1.6
    assert -28.5 < mine([-30.0, -29.0, -28.5, -5.0, -4.0], unit=False) <= -5


def test_scores_of_any_scale_are_split_where_no_range_is_assumed():
    scores = [0.1, 0.11, 0.12, 0.5, 0.52]
    for scale in (1e-6, 1e-2, 1e4):
        tau = mine([score * scale for score in scores], unit=False)
        assert 0.12 * scale < tau <= 0.5 * scale


def test_rare_unknowns_part_the_two_forms():
    random = np.random.default_rng(1)
    scores = np.concatenate([random.normal(0.3, 0.05, 9500), random.normal(0.6, 0.02, 500)]).clip(0, 1).tolist()
    assert mine(scores, weighted=True) < 0.5 < mine(scores, weighted=False)


def test_float32_scores_are_split_and_compared_in_float32():
    scores = torch.tensor([0.1, 0.35, 0.35, 0.9], dtype=torch.float32)
    tau = otsu_threshold(scores)
    assert tau.dtype == torch.float32
    assert int((scores < tau).sum()) == 3
