"""What speaks for statistics, and when a group is strange."""

import math
from dataclasses import replace

import pytest
import torch

from owttt import wrap
from owttt.functional import information, information_maximization
from owttt.methods.candidates import Candidate, Split
from owttt.types import Forward
from tests.world import make_world


def candidate(quarter, logits, depth=None):
    scores = torch.full((len(logits),), quarter, dtype=torch.float64)
    looks = None if depth is None else torch.full_like(scores, depth)
    return Candidate(torch.zeros(2, 1), Forward(logits, logits), scores, scores, scores, logits, looks)


def answers(*labels, certainty=4.0):
    return certainty * torch.nn.functional.one_hot(torch.tensor(labels), 4).double()


DIVERSE, ONE_CLASS = answers(0, 1, 2, 3), answers(0, 0, 0, 0)


def test_worth_is_what_the_answers_tell_over_the_quartile():
    p = DIVERSE.softmax(dim=1)
    each = -(p * p.log()).sum(dim=1).mean()
    together = -(p.mean(dim=0) * p.mean(dim=0).log()).sum()
    assert candidate(0.2, DIVERSE).worth == pytest.approx(math.log(float(together - each) / 0.2))


def test_statistics_are_better_if_samples_are_closer_or_answers_tell_more():
    plain = candidate(0.2, DIVERSE)
    assert candidate(0.18, DIVERSE).better(plain, by=0.1)
    assert not candidate(0.18, DIVERSE).better(plain, by=0.11)
    assert candidate(0.2, 2 * DIVERSE).better(plain, by=0.02)
    assert not plain.better(plain, by=0.0)


def test_answers_that_tell_more_do_not_outweigh_samples_that_are_farther_off():
    """Statistics of a batch of one class spread its answers over all of them."""
    known, spread = candidate(0.05, ONE_CLASS), candidate(0.2, DIVERSE)
    assert spread.worth > known.worth
    assert not spread.better(known, by=0.02)


def test_looks_on_the_way_speak_where_answers_cannot():
    far, near = candidate(0.2, DIVERSE, depth=2.0), candidate(0.205, DIVERSE, depth=1.0)
    assert near.worth - far.worth == pytest.approx(math.log(2.0 / 1.0) + math.log(0.2 / 0.205))
    assert near.better(far, by=0.1)
    assert not far.better(near, by=0.0)
    assert near.of(torch.tensor([True, False, True, True])).depth.tolist() == [1.0, 1.0, 1.0]


def test_samples_that_are_all_alike_have_a_worth():
    assert math.isfinite(candidate(0.0, torch.zeros(4, 4)).worth)


def test_rounding_is_no_gain():
    """Answers and scores that are all alike but for their last digits."""
    same, nearly = candidate(0.2, torch.zeros(4, 4)), candidate(0.2, 1e-3 * DIVERSE)
    assert not nearly.better(same, by=0.02)
    assert candidate(1e-7, 2 * DIVERSE).better(candidate(0.0, DIVERSE), by=0.02)


def test_classes_that_are_masked_and_answers_that_overflow_do_not_hide_what_the_others_tell():
    masked = torch.cat((DIVERSE, torch.full((4, 1), -torch.inf, dtype=DIVERSE.dtype)), dim=1)
    assert candidate(0.2, masked).worth == pytest.approx(candidate(0.2, DIVERSE).worth)
    overflown = torch.cat((DIVERSE, torch.full((1, 4), torch.inf, dtype=DIVERSE.dtype)))
    assert candidate(0.2, overflown).worth == pytest.approx(candidate(0.2, DIVERSE).worth)
    assert math.isfinite(candidate(0.2, torch.full((2, 4), torch.nan)).worth)


def test_some_of_the_samples():
    whole = candidate(0.2, DIVERSE)
    assert whole.of(torch.tensor([True, False, True, False])).logits.tolist() == DIVERSE[::2].tolist()


@pytest.mark.parametrize(
    ("likeness", "others", "by_own", "doubt", "strange"),
    [
        (0.8, 0.3, None, 0.0, True),
        (0.8, 0.4, None, 0.0, False),
        (0.8, 0.3, None, 0.1, False),
        (0.4, 0.23, (0.4, 0.02), 0.0, True),
        (0.3, 0.25, (0.3, 0.02), 0.0, False),
        (0.9, 0.8, (0.05, 0.04), 0.0, False),
        (0.9, 0.1, (0.05, 0.04), 0.0, True),
    ],
    ids=[
        "unlike",
        "alike",
        "unlike, but mixed",
        "unlike by their own",
        "too much alike with the source's",
        "two classes",
        "both",
    ],
)
def test_strange(likeness, others, by_own, doubt, strange):
    split = Split(torch.ones(4, dtype=torch.bool), likeness, others, by_own, doubt)
    assert split.strange(0.4) == strange
    assert not replace(split, doubt=0.4).strange(0.4)
    assert replace(split, held=True).strange(0.4) == replace(split, held=False).strange(0.6)


def test_information_is_what_shot_maximizes():
    assert float(information(DIVERSE)) == pytest.approx(-float(information_maximization(DIVERSE)))


def test_statistics_that_are_too_far_off_do_not_cost_those_in_use_their_place(monkeypatch):
    """Two steps of 4 % are beyond the 5 % that a quartile may be above that of the source's statistics."""
    world = make_world()
    method = wrap(world.model, "owttt+", source=world.source).method
    source, in_use, far = (candidate(0.2 * 1.04**n, (1 + n) / 4 * DIVERSE) for n in range(3))
    assert in_use.better(source, by=0.02)
    assert far.better(in_use, by=0.02)
    assert not far.better(source, by=0.02)
    monkeypatch.setattr(method, "_others", lambda *_: iter([far]))
    statistics, _ = method._judged(world.x[:4], source, in_use)
    assert statistics is method.present
