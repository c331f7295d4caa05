"""The library equals the literal reference, batch for batch, over a whole stream."""

import math

import pytest
import torch

from owttt import wrap
from tests import reference
from tests.world import CLASSES, make_world

ORDERS = {"predict-then-adapt": False, "adapt-then-predict": True}


def compare(
    method, literal, *, order="predict-then-adapt", world=None, method_options=None, wrap_options=None, **common
):
    world = world or make_world()
    paper = {"preset": "paper", "source": world.source, "order": order}
    mine = wrap(world.model, method, **paper, **(method_options or {}), **(wrap_options or {}))
    theirs = literal(world.model, world.x, world.y, CLASSES, released=ORDERS[order], **(method_options or {}), **common)
    moved = 0.0
    for x, _ in world.stream:
        out = mine(x)
        assert out.labels.tolist() == theirs.step(x)
        torch.testing.assert_close(out.scores.tolist(), theirs.scores, rtol=1e-6, atol=1e-9)
        assert float(out.threshold) == pytest.approx(theirs.last_tau, abs=1e-12)
        weights = dict(mine.method.network.model.state_dict())
        for name, value in theirs.model.state_dict().items():
            torch.testing.assert_close(weights[name], value, rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
    if method == "owttt":
        pool = torch.stack(theirs.pool) if theirs.pool else torch.empty(0, 12, dtype=torch.float64)
        torch.testing.assert_close(mine.method.pool.values, pool, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(mine.method.target.covariance, theirs.target.cov, rtol=1e-6, atol=1e-9)
    for name, value in world.model.state_dict().items():
        moved = max(moved, float((theirs.model.state_dict()[name] - value).abs().max()))
    return moved, mine


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 1e-2},
        {"momentum": 0.0},
        {"alignment_weight": 0.3},
        {"clustering": "source"},
        {"clustering": "off"},
        {"clustering": "source", "expansion": False, "alignment": False, "lr": 1e-2},
        {"expansion": False},
        {"alignment": False},
        {"keep_rate": 0.25},
        {"keep_rate": 0.75},
        {"keep_rate": 1.0},
        {"pool_size": 3},
        {"temperature": 0.3},
        {"horizon": 50},
        {"horizon": 7},
        {"max_norm": 1.0},
        {"max_norm": None},
        {"pool_score": True},
        {"pool_momentum": 0.1},
        {"pool_score": True, "pool_momentum": 0.3, "pool_size": 5},
    ],
    ids=str,
)
def test_owttt_options(order, options):
    moved, adapter = compare("owttt", reference.OWTTT, order=order, method_options=options)
    assert moved > 1e-5
    expected = options.get("expansion", True)
    assert bool(adapter.method.pool.count) == expected, "the pool must be in play, or this shows nothing"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("wrap_options", "common"),
    [
        ({"window": 60}, {"window": 60}),
        ({"threshold": "adaptive-unweighted", "weighted": False}, {"weighted": False}),
        ({"threshold": 0.2}, {"rule": 0.2}),
        ({"threshold": (0.4, 1.0)}, {"rule": (0.4, 1.0)}),
        ({"threshold": "off"}, {"rule": math.inf}),
        ({"threshold": 0.0}, {"rule": 0.0}),
        ({"score": "centered"}, {"score": "centered"}),
        ({"score": "energy"}, {"score": "energy"}),
        ({"score": "max-softmax"}, {"score": "max-softmax"}),
        pytest.param(
            {"score": lambda out, _: -out.features.norm(dim=1)},
            {"score": lambda z, _: -z.norm(dim=1)},
            id="a function",
        ),
    ],
    ids=str,
)
def test_owttt_detector(order, wrap_options, common):
    compare("owttt", reference.OWTTT, order=order, wrap_options=wrap_options, **common)


@pytest.mark.parametrize("order", ORDERS)
def test_owttt_without_batch_norm_on_signed_features(order):
    world = make_world(norm=False, signed=True)
    moved, adapter = compare("owttt", reference.OWTTT, order=order, world=world)
    assert moved > 1e-4
    assert float(adapter.detector.window.values.max()) > 1


@pytest.mark.parametrize("order", ORDERS)
def test_scores_by_the_pool_on_signed_features(order):
    world = make_world(norm=False, signed=True)
    options = {"pool_score": True, "pool_momentum": 0.1}
    _, adapter = compare("owttt", reference.OWTTT, order=order, world=world, method_options=options)
    assert adapter.method.pool.count
    assert adapter.config["score"] == "pool"


@pytest.mark.parametrize("order", ORDERS)
def test_owttt_in_batches_of_a_few(order):
    compare("owttt", reference.OWTTT, order=order, world=make_world(batch=5))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("method", "literal", "options"),
    [
        ("test", reference.Test, {}),
        ("bn", reference.BN, {}),
        ("bn", reference.AlphaBN, {"alpha": 0.3}),
        ("tent", reference.Tent, {}),
        ("tent", reference.Tent, {"lr": 1e-2, "optim": "sgd", "momentum": 0.5}),
        ("tent", reference.Tent, {"prune": True}),
        ("shot", reference.Shot, {}),
        ("shot", reference.Shot, {"weight": 1.0, "pseudo_weight": 0.3}),
        ("shot", reference.Shot, {"prune": True}),
        ("ttt++", reference.TTTPlusPlus, {}),
        ("ttt++", reference.TTTPlusPlus, {"queue": 50, "max_norm": None, "lr": 1e-5, "prune": True}),
        ("ttac", reference.TTAC, {}),
        ("ttac", reference.TTAC, {"max_norm": 0.1}),
        ("ttac", reference.TTAC, {"class_prior": 64, "class_horizon": 64, "class_minimum": 65}),
        ("ttac", reference.TTAC, {"lr": 1e-3, "scale": 0.5, "class_horizon": 6, "class_minimum": 9}),
        ("ttac", reference.TTAC, {"average_classes": False, "confidence": 0.5, "prune": True}),
    ],
    ids=str,
)
def test_competitors(order, method, literal, options):
    moved, _ = compare(method, literal, order=order, method_options=options)
    assert (moved > 1e-6) == (method not in ("test", "bn"))


def test_ttac_with_class_variances():
    from owttt import SourceStats

    world = make_world()
    loader = [(world.x, world.y)]
    source = SourceStats.fit(world.model, loader, CLASSES, class_covariance="diagonal", progress=False)
    mine = wrap(world.model, "ttac", source=source, preset="paper", class_minimum=4)
    theirs = reference.TTAC(world.model, world.x, world.y, CLASSES, diagonal=True, class_minimum=4)
    for x, _ in world.stream:
        assert mine(x).labels.tolist() == theirs.step(x)
    torch.testing.assert_close(mine.method.network.model.conv.weight, theirs.model.conv.weight, rtol=1e-5, atol=1e-7)


def plus_pair(world, order, **options):
    """`owttt+`, and what it is held against; what source samples score is drawn, see test_scores_of_the_source."""
    adapter = wrap(world.model, "owttt+", source=world.source, order=order, preset="paper", **options)
    more = {"middle": adapter.method.middle, "released": ORDERS[order]}
    return adapter, reference.Plus(world.model, world.x, world.y, CLASSES, **more, **options)


def in_use(literal):
    layers = reference.batch_norm_layers(literal.present)
    return torch.stack((torch.cat([a.running_mean for a in layers]), torch.cat([a.running_var for a in layers])))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, {"every"}),
        ({"chunk": 100}, {"every"}),
        ({"momentum": 1.0, "jump": 0.9}, {"every"}),
        ({"keep": 1.0}, {"every"}),
        ({"rounds": 0}, {"every"}),
        ({"rounds": 3, "keep": 0.3}, {"every"}),
        ({"jump": 0.0, "keep": 0.8}, {"every"}),
        ({"least": 1.0}, {"every"}),
        ({"strange": 0.9}, {"every"}),
        ({"rest": 0}, {"every"}),
        ({"rest": 1}, {"every"}),
    ],
    ids=str,
)
def test_plus(order, options, shown):
    world = make_world(batch=80)
    adapter, literal = plus_pair(world, order, **{"chunk": 60, **options})
    for x, _ in world.stream:
        out = adapter(x)
        assert out.labels.tolist() == literal.step(x)
        torch.testing.assert_close(out.scores.tolist(), literal.scores, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(adapter.method.present, in_use(literal), rtol=1e-6, atol=1e-9)
    assert bool(literal.rested) == (options.get("rest", 7) > 0), "the search must rest, or the test does not show it"
    assert shown <= set(literal.moves), "this must be in play, or the test shows nothing"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("strange", [0.3, 0.0])
def test_plus_rejects_strangers(order, strange):
    """A third of the samples are bright noise, which is unknown by its looks; batches of 9 remember them."""
    world = make_world(batch=80)
    adapter, literal = plus_pair(world, order, chunk=60, strange=strange)
    noise = torch.randn(400, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = (2 * world.x + 3)[:200]
    x[::3] = 4 * noise[: len(x[::3])] - 6
    for part in (*x.split(80)[:2], *x[160:].split(9)):
        out = adapter(part)
        assert out.labels.tolist() == literal.step(part)
        torch.testing.assert_close(out.scores.tolist(), literal.scores, rtol=1e-6, atol=1e-9)
    assert bool(literal.rejected) == bool(literal.recalled) == bool(strange)


@pytest.mark.parametrize("order", ORDERS)
def test_plus_goes_half_the_way_where_little_has_changed(order):
    world = make_world(batch=80)
    adapter, literal = plus_pair(world, order, chunk=60)
    for x in (world.x + 0.2).split(80):
        assert adapter(x).labels.tolist() == literal.step(x)
        torch.testing.assert_close(adapter.method.present, in_use(literal), rtol=1e-6, atol=1e-9)
    assert "half" in literal.moves, "this must be in play, or the test shows nothing"


@pytest.mark.parametrize("order", ORDERS)
def test_plus_goes_back_to_the_source_at_once(order):
    """Bright samples, then clean ones; no gain is large enough for statistics to be taken as they are."""
    world = make_world(batch=80)
    adapter, literal = plus_pair(world, order, chunk=60, jump=100.0)
    bright = 2 * world.x[:160] + 3
    for x in (*bright.split(80), world.x[:80]):
        assert adapter(x).labels.tolist() == literal.step(x)
        torch.testing.assert_close(adapter.method.present, in_use(literal), rtol=1e-6, atol=1e-9)
    assert literal.moves[-1] == "source", "this must be in play, or the test shows nothing"
    assert adapter.method.normalization.is_source(adapter.method.present)


@pytest.mark.parametrize("order", ORDERS)
def test_plus_rejects_what_is_alike_with_the_source_statistics_only(order):
    """Among bright samples a third are noise or nearly the same sample, which the source's statistics know well."""
    world = make_world(batch=80)
    adapter, literal = plus_pair(world, order, chunk=60)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(400, 1, 8, 8, generator=generator, dtype=torch.float64)[:54]
    near = world.x[world.y == 0][:1] + 0.05 * noise
    alike = torch.rand(len(noise), generator=generator) < 0.3
    x = 1.5 * world.x[:160] + 0.5
    x[::3] = near.where(alike[:, None, None, None], 0.9 * noise + 2)
    for part in x.split(80):
        assert adapter(part).labels.tolist() == literal.step(part)
    assert literal.by_own, "this must be in play, or the test shows nothing"


@pytest.mark.parametrize("order", ORDERS)
def test_plus_does_not_take_strangers_for_known_at_once(order):
    """Dark noise is strange; among it are more dark known samples in the second batch, but that is not enough.

    Nothing is pruned here: statistics in use that are of few samples move so far that some of the noise is alike.
    """
    world = make_world(batch=80)
    adapter, literal = plus_pair(world, order, chunk=60, rest=0, rounds=0)
    noise = 4 * torch.randn(400, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 6
    one, two = 2 * world.x[:80] + 3, 2 * world.x[80:160] + 3
    one[::3], two[::3] = noise[:27], noise[27:54]
    one[:30:3], two[:51:3] = 4 * world.x[:30:3] - 6, 4 * world.x[80:131:3] - 6
    for part, held in ((one, False), (two, True)):
        out = adapter(part)
        assert out.labels.tolist() == literal.step(part)
        torch.testing.assert_close(out.scores.tolist(), literal.scores, rtol=1e-6, atol=1e-9)
        assert not out.known[::3].any()
        assert bool(literal.held) == held, "this must be in play, or the test shows nothing"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("least", [0.1, 0.0])
def test_plus_knows_when_nothing_is_known(order, least):
    """Known samples, then nothing but bright noise, in batches of 80 and of 9, then known ones again."""
    world = make_world(batch=80)
    adapter, literal = plus_pair(world, order, chunk=60, least=least)
    noise = 4 * torch.randn(120, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 6
    for x in (world.x[:80], noise[:80], *noise[80:].split(9), world.x[80:160]):
        out = adapter(x)
        assert out.labels.tolist() == literal.step(x)
        torch.testing.assert_close(out.scores.tolist(), literal.scores, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(adapter.method.present, in_use(literal), rtol=1e-6, atol=1e-9)
        if least and x.mean() < -5:
            assert not out.known.any()
    assert bool(literal.empty) == bool(least), "this must be in play, or the test shows nothing"


@pytest.mark.parametrize("order", ORDERS)
def test_plus_never_takes_everything_for_unknown_before_anything_was_known(order):
    world = make_world(batch=80)
    adapter, literal = plus_pair(world, order, chunk=60)
    noise = 4 * torch.randn(160, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 6
    for x in noise.split(80):
        assert adapter(x).labels.tolist() == literal.step(x)
    assert not literal.empty


@pytest.mark.parametrize("order", ORDERS)
def test_plus_in_small_batches_goes_back_to_the_source(order):
    """A corrupted stream, then clean samples in batches of 7: statistics of what is gone are left at a glance."""
    world = make_world(batch=80)
    adapter, literal = plus_pair(world, order, chunk=60)
    for x in (*(2 * world.x + 3).split(80), *world.x[:140].split(7)):
        assert adapter(x).labels.tolist() == literal.step(x)
        torch.testing.assert_close(adapter.method.present, in_use(literal), rtol=1e-6, atol=1e-9)
    assert literal.glances, "this must be in play, or the test shows nothing"
