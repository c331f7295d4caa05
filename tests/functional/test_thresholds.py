import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owttt.functional import evidence_threshold, excess, otsu_threshold
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


def literal_evidence(scores, quantiles, budget, right=None, held_out=0, *, corrected=False):
    """The formula of the module, step by step."""

    def at(share, quantiles=quantiles):
        place = share * (len(quantiles) - 1)
        low = min(int(place), len(quantiles) - 2)
        return quantiles[low] + (place - low) * (quantiles[low + 1] - quantiles[low])

    ordered, number = sorted(scores), len(scores)
    place = 0.2 * (number - 1)
    above = ordered[min(int(place) + 1, number - 1)]
    lowest = ordered[int(place)] + (place - int(place)) * (above - ordered[int(place)])
    rise = max(0, lowest - at(0.2))
    moved = rise / (at(0.85) - at(0.2))
    cut = at(0.5) + (1.5 + 3 * moved) * (at(0.99) - at(0.5))
    split = float(otsu_threshold(torch.tensor([min(s, cut) for s in scores], dtype=torch.float64), unit=False))
    median = (ordered[(number - 1) // 2] + ordered[number // 2]) / 2
    share = max(0.08, budget) if corrected else budget
    one_mode = at(1 - share, right or quantiles) + min(max(0, median - at(0.5)), at(0.75) - at(0.5))
    if split == math.inf:
        return one_mode
    excess = sum(p - sum(s <= at(p) for s in scores) / number for p in (0.95, 0.98)) / 2
    unexplained = sum(1 - sum(s <= at(p) for s in scores) / number / p for p in (0.5, 0.6, 0.7)) / 3
    groups = [s for s in scores if s < split], [s for s in scores if s >= split]
    means = [sum(group) / len(group) for group in groups]
    variances = [sum((s - mean) ** 2 for s in group) / len(group) for group, mean in zip(groups, means, strict=True)]
    apart = min(map(len, groups)) >= 8 and means[1] - means[0] > 4.5 * math.sqrt(sum(variances) / 2)
    error = math.sqrt(1 / number + (1 / held_out if held_out else 0))
    few = excess <= (0.005 if held_out else 0.05) + 0.4 * error
    alike = unexplained <= (0.04 if held_out else 0.11) + 1.6 * error
    if few and alike and not apart:
        return one_mode
    return max(split, at(1 - max(0.08, budget, unexplained - 0.2), right or quantiles))


SOURCE_SCORES = torch.distributions.Beta(2.0, 20.0)


def test_excess_is_how_many_more_score_high_than_of_the_source():
    quantiles = torch.linspace(0, 1, 201, dtype=torch.float64)
    assert excess(torch.linspace(0, 1, 2001, dtype=torch.float64), quantiles) == pytest.approx(0, abs=1e-3)
    scores = torch.cat((torch.full((60,), 0.5), torch.full((30,), 0.96), torch.full((10,), 2.0))).double()
    assert excess(scores, quantiles) == pytest.approx(((0.4 - 0.05) + (0.1 - 0.02)) / 2)


@pytest.mark.parametrize("number", [1, 2, 5, 60, 512])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_evidence_equals_the_literal_form(number, share):
    torch.manual_seed(int(10 * share) + number)
    quantiles = SOURCE_SCORES.sample((4000,)).double().quantile(torch.linspace(0, 1, 201, dtype=torch.float64))
    for scale, shift in ((1.0, 0.0), (1.5, 0.05), (-40.0, 3.0)):
        known = SOURCE_SCORES.sample((number,)).double()
        scores = torch.where(torch.rand(number) < share, known + 0.3, known)
        scores, source = (scores * abs(scale) + shift), (quantiles * abs(scale) + (shift if scale < 0 else 0.0))
        right = 0.8 * source
        given = ((), (right,), (right, 700))
        found = [
            [float(evidence_threshold(scores, source, 0.02, *more, corrected=corrected)) for more in given]
            for corrected in (False, True)
        ]
        known = scores.tolist(), source.tolist(), 0.02
        plain = [[one.tolist() if one is right else one for one in more] for more in given]
        for corrected in (False, True):
            literal = [literal_evidence(*known, *more, corrected=corrected) for more in plain]
            assert found[corrected] == pytest.approx(literal, abs=1e-9)


def test_evidence_keeps_to_the_budget_where_nothing_is_unknown():
    torch.manual_seed(0)
    quantiles = SOURCE_SCORES.sample((5000,)).quantile(torch.linspace(0, 1, 201))
    rejected = [
        float((window >= evidence_threshold(window, quantiles, 0.02)).float().mean())
        for window in SOURCE_SCORES.sample((100, 512))
    ]
    assert sum(rejected) / 100 < 0.03
    assert max(rejected) < 0.06, "no window is split"
    window = SOURCE_SCORES.sample((512,))
    assert float((window >= otsu_threshold(window)).float().mean()) > 0.2, "where Otsu splits it"


def test_evidence_counts_every_group_beyond_the_known_as_unknown():
    """A near and a far unknown group: Otsu parts off the far one, evidence both."""
    torch.manual_seed(0)
    quantiles = SOURCE_SCORES.sample((5000,)).quantile(torch.linspace(0, 1, 201))
    known, near, far = SOURCE_SCORES.sample((256,)), 0.3 + 0.03 * torch.randn(128), 0.9 + 0.03 * torch.randn(128)
    window = torch.cat((known, near, far))
    assert float((near < otsu_threshold(window)).float().mean()) > 0.9
    threshold = evidence_threshold(window, quantiles, 0.02)
    assert float((near < threshold).float().mean()) < 0.1
    assert float((known < threshold).float().mean()) > 0.9


def test_a_single_score_is_held_against_the_source():
    quantiles = torch.linspace(0, 0.5, 201)
    for score, known in ((0.1, True), (0.49, True), (0.9, False)):
        one = torch.tensor([score])
        assert bool(one < evidence_threshold(one, quantiles, 0.0)) is known


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 16, 40])
def test_few_scores_of_known_samples_are_kept(number):
    torch.manual_seed(number)
    quantiles = SOURCE_SCORES.sample((5000,)).quantile(torch.linspace(0, 1, 201))
    windows = SOURCE_SCORES.sample((300, number))
    rejected = [float((window >= evidence_threshold(window, quantiles, 0.01)).float().mean()) for window in windows]
    assert sum(rejected) / len(rejected) < 0.03


def test_sources_that_score_alike_reject_nothing_like_them():
    for quantiles in (torch.zeros(201), torch.cat((torch.zeros(181), torch.linspace(0, 0.5, 20)))):
        window = torch.zeros(300)
        assert not bool((window >= evidence_threshold(window, quantiles, 0.01)).any())
        for far in (window + 0.7, torch.cat((window, window + 0.7))):
            assert bool(evidence_threshold(far, quantiles, 0.01).isfinite())


def test_evidence_of_samples_that_were_held_out_sees_smaller_shares_and_raises_no_false_alarm():
    """One in 16 is unknown, and scores only a little higher; few held-out samples are not trusted that much."""
    torch.manual_seed(0)
    quantiles = SOURCE_SCORES.sample((5000,)).quantile(torch.linspace(0, 1, 201))
    windows = SOURCE_SCORES.sample((200, 512))
    mixed = windows.clone()
    mixed[:, ::16] = mixed[:, ::16] + 0.15

    def alarms(windows, held_out):
        limits = [float(evidence_threshold(window, quantiles, 0.01, None, held_out)) for window in windows]
        return sum(limit < float(quantiles[-3]) for limit in limits)

    assert max(alarms(windows, 5000), alarms(windows, 0)) <= 2
    assert alarms(mixed, 5000) > 120
    assert max(alarms(mixed, 0), alarms(mixed, 60)) < 50
