"""Strangers in the detector: rejected whatever they score, and no part of what a threshold is made of."""

import math

import pytest
import torch

from owttt.detector import SCORES, Detector, Evidence, Otsu
from owttt.types import Strangers

QUANTILES = tuple(torch.linspace(0, 0.5, 201).tolist())


def detector(threshold, window=40):
    return Detector(SCORES["cosine"], threshold, window, like=torch.zeros(1))


def test_they_are_no_part_of_the_threshold():
    scores = torch.cat((torch.linspace(0.1, 0.15, 10), torch.linspace(0.3, 0.35, 10), torch.full((5,), 0.01)))
    odd = torch.arange(25) >= 20
    with_them = detector(Otsu()).judge(scores, strangers=Strangers(odd, distinct=True))
    without = detector(Otsu()).judge(scores[:20])
    assert with_them.threshold == without.threshold
    assert torch.equal(with_them.known[:20], without.known)
    assert not with_them.known[20:].any()
    assert (with_them.scores[20:] == scores.max()).all(), "as unknown as anything here"
    assert torch.equal(with_them.scores[:20], scores[:20])


def test_they_are_not_remembered():
    found = detector(Otsu())
    found.observe(torch.tensor([0.1, 0.9, 0.2]), Strangers(torch.tensor([False, True, False]), distinct=True))
    assert found.window.values.tolist() == pytest.approx([0.1, 0.2])
    assert found.explained.values.tolist() == [0, 1, 0]
    found.observe(torch.tensor([0.9]), Strangers(torch.tensor([True]), distinct=False))
    assert found.explained.values.tolist() == [0, 1, 0, 0], "only distinct ones explain what is unknown"


def test_nothing_but_strangers():
    verdict = detector(Otsu()).judge(torch.tensor([0.2, 0.3]), strangers=Strangers(torch.ones(2).bool(), distinct=True))
    assert verdict.threshold == math.inf
    assert not verdict.known.any()


def test_where_strangers_explain_the_unknown_few_of_the_others_are_rejected():
    scores = torch.cat((torch.linspace(0.1, 0.3, 50), torch.linspace(0.6, 0.8, 50)))
    evidence = Evidence(quantiles=QUANTILES)
    split = evidence(scores)
    assert (scores >= split).double().mean() >= 0.4
    assert evidence(scores, 0.04) == split, "too few of them"
    assert (scores >= evidence(scores, 0.2)).double().mean() <= 0.06
