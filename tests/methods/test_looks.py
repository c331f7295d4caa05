"""The parts of a stream: who is strange, whether parts are distinct, and what is remembered."""

import pytest
import torch

from owttt import wrap
from owttt.methods.looks import INSIDE, PARTS, KeptLooks, Looks, described, scale_of
from tests.world import make_world


def raw(*centers, number=60, spread=0.2, seed=0):
    """Looks `(B, 2, 3)` of several kinds of samples, one after the other."""
    generator = torch.Generator().manual_seed(seed)
    kinds = [
        torch.stack((center + spread * noise[:, 0], (1 + 0.1 * noise[:, 1]).abs()), dim=1)
        for center in centers
        for noise in [torch.randn(number, 2, 3, generator=generator, dtype=torch.float64)]
    ]
    return torch.cat(kinds), torch.arange(len(centers)).repeat_interleave(number)


def test_strangers_are_recognized_and_new_looks_are_nobodys():
    seen, part = raw(0.0, 4.0)
    parts = Looks.of(seen, part)
    assert parts.strangers == 1
    assert parts.distinct
    later, kinds = raw(0.0, 4.0, seed=1)
    assert ((kinds == 1) == parts.strange(later)).double().mean() > 0.97
    elsewhere, _ = raw(-30.0, 30.0, seed=2)
    assert not parts.strange(elsewhere).any(), f"farther than {INSIDE} from any part"


def test_parts_that_overlap_are_not_distinct():
    seen, part = raw(0.0, 0.3)
    assert not Looks.of(seen, part).distinct


def test_up_to_three_kinds():
    seen, part = raw(0.0, 4.0, -4.0, 8.0)
    parts = Looks.of(seen, part)
    assert parts.strangers == PARTS
    assert (parts.strange(seen) == (part > 0)).double().mean() > 0.97, "a few lie outside of their part"


def test_what_is_kept_is_state():
    seen, part = raw(0.0, 4.0)
    kept = KeptLooks(torch.zeros(2, 2, 3, dtype=torch.float64))
    assert kept.now.strangers == 0
    assert not kept.now.strange(seen).any()
    kept.keep(Looks.of(seen, part))
    other = KeptLooks(torch.zeros(2, 2, 3, dtype=torch.float64))
    other.load_state_dict(kept.state_dict())
    assert torch.equal(other.now.strange(seen), part == 1)
    assert all(value.isfinite().all() for value in kept.state_dict().values()), "a state is finite"
    kept.forget()
    assert kept.now.strangers == 0


def test_channels_without_any_deviation():
    flat = torch.zeros(5, 2, 3)
    assert torch.equal(scale_of(flat), torch.ones(3))
    assert described(flat, scale_of(flat)).isfinite().all()
    assert Looks.of(flat, torch.zeros(5)).strangers == 0


@pytest.mark.parametrize("known", [18, 20, 24])
def test_few_that_are_left_may_split_in_groups_too_small_for_statistics(known):
    world = make_world()
    noise = 6 * torch.randn(128 - known, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    adapter = wrap(world.model, "owttt+", source=world.source)
    assert len(adapter(torch.cat((world.x[:known], noise)))) == 128
    small = wrap(world.model, "owttt+", source=world.source, chunk=16)
    assert len(small(world.x[:known])) == known


def test_a_detector_that_is_off_rejects_nobody():
    world = make_world()
    noise = 6 * torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.cat((world.x[:96], noise))
    assert wrap(world.model, "owttt+", source=world.source, threshold="off")(x).known.all()
    out = wrap(world.model, "owttt+", source=world.source)(x)
    assert not out.known[96:].any()
