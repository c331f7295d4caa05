"""Strangers in the detector: rejected whatever they score, and no part of what a threshold is made of."""

import math

import pytest
import torch

from owttt.detector import SCORES, Detector, Evidence, Otsu
from owttt.types import Forward, Strangers

QUANTILES = tuple(torch.linspace(0, 0.5, 201).tolist())


def detector(threshold, window=40):
    return Detector(SCORES["cosine"], threshold, window, like=torch.zeros(1))


def said(strangers=None, *, corrected=False, number=1):
    """What a method says of a batch, as far as a detector listens."""
    nothing = torch.zeros(number, 2)
    return Forward(nothing, nothing, strangers=strangers, corrected=corrected)


def test_they_are_no_part_of_the_threshold():
    scores = torch.cat((torch.linspace(0.1, 0.15, 10), torch.linspace(0.3, 0.35, 10), torch.full((5,), 0.01)))
    odd = torch.arange(25) >= 20
    with_them = detector(Otsu()).judge(scores, said(Strangers(odd, distinct=True)))
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
    everybody = said(Strangers(torch.ones(2).bool(), distinct=True))
    verdict = detector(Otsu()).judge(torch.tensor([0.2, 0.3]), everybody)
    assert verdict.threshold == math.inf
    assert not verdict.known.any()


def test_where_strangers_explain_the_unknown_few_of_the_others_are_rejected():
    scores = torch.cat((torch.linspace(0.1, 0.3, 50), torch.linspace(0.6, 0.8, 50)))
    evidence = Evidence(quantiles=QUANTILES)
    split = evidence(scores)
    assert (scores >= split).double().mean() >= 0.4
    assert evidence(scores, 0.04) == split, "too few of them"
    assert (scores >= evidence(scores, 0.2)).double().mean() <= 0.06


def test_where_the_shift_is_corrected_more_is_rejected_of_one_mode():
    """Eight in a hundred by default, or the budget if that is larger; of two modes it makes no difference."""
    scores = torch.linspace(0, 0.5, 400)
    of_source = detector(Evidence(quantiles=QUANTILES), window=400)
    rejected = [int((~of_source.judge(scores, said(corrected=it)).known).sum()) for it in (False, True)]
    assert rejected == [3, 32]
    generous = detector(Evidence(budget=0.1, quantiles=QUANTILES), window=400)
    assert int((~generous.judge(scores, said(corrected=True)).known).sum()) == 40
    two = torch.cat((scores[::2], torch.linspace(0.8, 0.9, 200)))
    assert len({float(of_source.judge(two, said(corrected=it)).threshold) for it in (False, True)}) == 1
