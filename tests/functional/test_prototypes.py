import math

import pytest
import torch
import torch.nn.functional as F

from owttt.functional import expansion_threshold, isolated_samples, kept
from tests import reference


def literal(scores, unit, prototypes, pool, capacity, tau, split):
    """Recompute the extended score against the pool as it is, sample by sample."""
    pool, taken = list(pool), []
    unvisited = list(range(len(unit)))
    while unvisited:
        i = max(unvisited, key=lambda j: float(scores[j]))
        if scores[i] <= tau:
            break
        unvisited.remove(i)
        if 1 - max(float(unit[i] @ p) for p in [*prototypes, *pool]) > split:
            taken.append(i)
            pool = [*pool, unit[i]][-capacity:]
    return taken


@pytest.mark.parametrize("seed", range(40))
def test_expansion_equals_the_loop(seed):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    n, held, capacity = [int(v) for v in torch.randint(1, 40, (3,), generator=generator)]
    held = min(held, capacity) if seed % 4 else 0
    unit, prototypes, pool = (F.normalize(draw(k, 3), dim=1) for k in (n, 4, held))
    known = (unit @ prototypes.T).amax(dim=1)
    scores = (1 - known) if seed % 3 else (1 - known).round(decimals=1)
    tau = scores.median()
    split = torch.tensor(float(torch.rand((), generator=generator)) * 0.3, dtype=torch.float64)
    found = isolated_samples(scores, unit, known, pool, capacity, tau, split)
    assert found == literal(scores, unit, prototypes, pool, capacity, float(tau), float(split))


def test_identical_unknowns_make_one_prototype():
    unit = F.normalize(torch.ones(20, 6, dtype=torch.float64), dim=1)
    known = torch.full((20,), 0.395, dtype=torch.float64)
    split = expansion_threshold(1 - known)
    assert isolated_samples(1 - known, unit, known, unit[:0], 100, torch.tensor(0.5), split) == [0]


def test_expansion_threshold_falls_back_below_the_least():
    assert float(expansion_threshold(torch.tensor([0.347, 0.348, 0.349]))) == pytest.approx(0.34)
    assert float(expansion_threshold(torch.tensor([1.278]))) == pytest.approx(1.27)
    spread = [0.1, 0.12, 0.5, 0.55]
    assert float(expansion_threshold(torch.tensor(spread, dtype=torch.float64))) == reference.threshold(spread)


@pytest.mark.parametrize(
    ("size", "rate", "number"), [(0, 0.5, 0), (1, 0.5, 1), (3, 0.5, 1), (10, 0.5, 5), (10, 1.0, 10)]
)
@pytest.mark.parametrize("highest", [True, False])
def test_kept(size, rate, number, highest):
    scores = torch.rand(size + 5, generator=torch.Generator().manual_seed(size))
    group = torch.arange(size + 5) < size
    members = sorted(range(size), key=lambda i: float(scores[i]), reverse=highest)
    assert kept(scores, group, rate, highest=highest).tolist() == members[:number]
    assert not math.isnan(float(scores.sum()))
