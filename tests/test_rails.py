"""On rails: small batches are learned from together, steps fit their samples, a collapse ends in a new beginning."""

import copy

import pytest
import torch
from torch import nn

from owttt import METHODS, Evidence, Method, SourceStats, models, wrap
from owttt._utils import state
from owttt.adapter.rails import COMPARED, EVERY, FULL, Rails
from owttt.methods.gathering import ENOUGH
from tests.world import make_world

WORLD = make_world()
X = torch.cat([x for x, _ in WORLD.stream])
LEARNING = [name for name, method in METHODS.items() if method.adapts]


def made(method="owttt", **options):
    return wrap(WORLD.model, method, source=WORLD.source, threshold="adaptive", **options)


def moved(adapter):
    start = dict(WORLD.model.state_dict())
    return any(not torch.equal(value, start[name]) for name, value in adapter.method.network.model.state_dict().items())


@pytest.mark.parametrize("method", ["tent", "shot", "ttt++", "ttac", "owttt"])
def test_small_batches_are_learned_from_once_there_are_enough(method):
    adapter = made(method)
    for start in range(0, ENOUGH, 9):
        adapter(X[start : start + 9])
        if start + 9 < ENOUGH:
            assert not moved(adapter), "too few samples yet"
    assert moved(adapter)


@pytest.mark.parametrize("method", ["shot", "ttt++", "ttac", "owttt"])
def test_a_step_is_as_long_as_its_samples_are_many(method):
    """With 64 of 256 samples, a quarter of the rate and of BatchNorm's momentum."""
    lr = METHODS[method]().lr
    slow = copy.deepcopy(WORLD.model)
    for layer in (slow.norm, slow.last):
        layer.momentum *= ENOUGH / FULL
    ours = made(method)
    theirs = wrap(
        slow, method, source=WORLD.source, preset="paper", lr=lr * ENOUGH / FULL, max_norm=ours.method.max_norm
    )
    for batch in X[: 2 * ENOUGH].split(ENOUGH):
        assert torch.equal(ours(batch).scores, theirs(batch).scores)
    for name, value in theirs.method.network.model.state_dict().items():
        torch.testing.assert_close(ours.method.network.model.state_dict()[name], value, msg=name)
    assert ours.method.network.model.norm.momentum == WORLD.model.norm.momentum, "the layer's own is put back"


def test_the_pace_does_not_add_up():
    adapter = made("tent")
    for size in (ENOUGH, ENOUGH, 2 * ENOUGH):
        adapter(X[:size])
        assert [group["lr"] for group in adapter.method.optimizer.param_groups] == [adapter.method.lr * size / FULL]


@pytest.mark.parametrize("method", LEARNING)
@pytest.mark.parametrize("order", ["predict-then-adapt", "adapt-then-predict"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_everything_as_it_was(method, order, error, monkeypatch):
    """Also what was gathered, momenta, and the pace."""
    options = {"order": order, **({"chunk": 60} if method == "owttt+" else {})}
    adapter, twin = made(method, **options), made(method, **options)
    for batch in X[:120].split(30):
        adapter(batch), twin(batch)
    before = state.snapshot(adapter, adapter.method.optimizer)
    learn = adapter.method.adapt

    def fails(x, out, verdict):
        learn(x, out, verdict)
        for layer in (adapter.method.network.model.norm, adapter.method.network.model.last):
            layer.momentum = 0.5
        raise error("in the middle")

    monkeypatch.setattr(adapter.method, "adapt", fails)
    with pytest.raises(error):
        adapter(X[120 : 120 + 80])
    monkeypatch.undo()
    now = state.collect(adapter, adapter.method.optimizer)
    assert all(torch.equal(value, now[name]) for name, value in before.items())
    for batch in X[120:240].split(30):
        assert torch.equal(adapter(batch).scores, twin(batch).scores), "it goes on as if nothing had been"


@pytest.mark.parametrize("method", LEARNING)
@pytest.mark.parametrize("order", ["predict-then-adapt", "adapt-then-predict"])
def test_what_was_gathered_is_saved_and_reset(method, order, tmp_path):
    adapter, again = made(method, order=order), made(method, order=order)
    start = state.snapshot(adapter, adapter.method.optimizer)
    for batch in X[:50].split(7):
        adapter(batch)
    adapter.save(tmp_path / "state")
    again.restore(tmp_path / "state")
    for batch in X[50:150].split(7):
        assert torch.equal(adapter(batch).scores, again(batch).scores)
    adapter.reset()
    now = state.collect(adapter, adapter.method.optimizer)
    assert all(torch.equal(value, now[name]) for name, value in start.items())


class Collapses(Method):
    """Turns the network into one that gives a single class, whatever it is shown."""

    def setup(self):
        self.optimize_backbone(1.0, 0.0)

    def adapt(self, x, out, verdict):
        with torch.no_grad():
            last = self.network.model.last
            last.weight.zero_()
            last.bias.copy_(self.source.class_means[0].to(last.bias))


@pytest.mark.parametrize("order", ["predict-then-adapt", "adapt-then-predict"])
@pytest.mark.parametrize("size", [1, 40, 240])
def test_a_collapse_is_noticed_and_undone(order, size):
    adapter = made(Collapses, order=order)
    stream = X.repeat(COMPARED * EVERY // len(X) + 1, 1, 1, 1)
    with pytest.warns(UserWarning, match=r"effective classes.*began anew"):
        answers = [adapter(batch) for batch in stream.split(size)]
    assert not all(answer.learned for answer in answers)
    assert {event.kind for event in adapter.events} == {"collapsed"}
    assert adapter.watch()["events"] == len(adapter.events)


@pytest.mark.parametrize("period", [2, 4])
def test_a_collapse_is_noticed_where_classes_take_turns(period):
    """Cameras that are asked in turn, say: the samples compared must not all be of one class."""
    adapter = made(Collapses)
    turns = torch.stack([WORLD.x[WORLD.y == label][:8] for label in range(period)], dim=1).flatten(0, 1)
    stream = turns.repeat(2 * COMPARED * EVERY // len(turns), 1, 1, 1)
    with pytest.warns(UserWarning, match=r"effective classes.*began anew"):
        _ = [adapter(batch) for batch in stream.split(128)]
    assert {event.kind for event in adapter.events} == {"collapsed"}


def test_a_stream_of_one_class_is_no_collapse():
    adapter = made("owttt")
    known = WORLD.x[WORLD.y == 0]
    for batch in known.repeat(2 * COMPARED * EVERY // len(known), 1, 1, 1).split(240):
        adapter(batch)
    assert not adapter.events


@pytest.mark.parametrize("rejected", [1, 4, 5, 8])
def test_a_few_rejected_samples_are_no_group(rejected):
    """On rails, less than one in 16 teach nothing; in the paper's form each of them becomes a prototype or a loss."""

    def threshold(scores):
        return scores[-80:].sort().values[-rejected - 1 :][:2].mean()

    adapter = wrap(WORLD.model, "owttt", source=WORLD.source, threshold=threshold)
    paper = wrap(WORLD.model, "owttt", source=WORLD.source, threshold=threshold, preset="paper")
    for one in (adapter, paper):
        assert int((one(X[:80]).labels < 0).sum()) == rejected
    assert bool(adapter.method.pool.count) == (rejected >= 5)
    assert paper.method.pool.count


def test_two_classes_can_collapse_too():
    rails = Rails(made("owttt").method)
    rails.num_classes = 2
    half, none = (lambda batch: torch.arange(len(batch)) % 2), torch.zeros(160, dtype=torch.long)
    told = [rails.collapsed(torch.zeros(160, 1), none, half) for _ in range(12)]
    assert "1.0 effective classes, 2.0 without adapting" in told


def test_presets_and_guard_false_go_without_rails():
    for options in ({"preset": "paper"}, {"guard": False}, {"preset": "cifar10-c"}):
        adapter = wrap(WORLD.model, "owttt", source=WORLD.source, **options)
        assert adapter.rails is None
        assert adapter.config["rails"] is False
        adapter(X[:8])
        assert moved(adapter), "it learns from few samples, in full steps"
    assert wrap(WORLD.model, "test", source=WORLD.source).rails is None, "nothing to keep on rails"


def test_named_inputs_are_gathered_too(tmp_path):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = copy.deepcopy(WORLD.model)

        def forward(self, pixels, mask):
            return self.inside(pixels) + 0 * mask.sum()

    def fields(x):
        return {"pixels": x, "mask": x.new_zeros(len(x), 3)}

    loader = [{**fields(WORLD.x), "labels": WORLD.y}]
    model = Named()
    SourceStats.fit(model, loader, 4, progress=False).save(tmp_path / "stats")
    adapter = wrap(model, "owttt", source=SourceStats.load(tmp_path / "stats"), threshold="adaptive")
    plain = made("owttt")
    for number, batch in enumerate(X[:140].split(7)):
        named = fields(batch) if number % 2 else dict(reversed(fields(batch).items()))
        torch.testing.assert_close(adapter(named).scores, plain(batch).scores)
    assert moved(plain)


@pytest.mark.parametrize("method", ["bn", "tent"])
def test_statistics_of_few_samples_are_mixed_with_the_source_s(method):
    for size, share in ((1, 1 / ENOUGH), (16, 16 / ENOUGH), (64, 1.0), (100, 1.0)):
        ours, mixed = made(method), wrap(WORLD.model, "bn", source=WORLD.source, preset="paper", alpha=share)
        torch.testing.assert_close(ours(X[:size]).scores, mixed(X[:size]).scores)


def test_the_threshold_of_a_wrapped_model():
    adapter = wrap(WORLD.model, "test", source=WORLD.source)
    assert adapter.config["threshold"].startswith("Evidence(budget=0.0075, quantiles=")
    quantiles = WORLD.source.score_quantiles(right=True)
    known = wrap(WORLD.model, "test", source=WORLD.source, threshold=Evidence(budget=0.1))
    assert float(known(WORLD.x).threshold) == pytest.approx(float(quantiles.quantile(0.9)), abs=0.01)
    paper = wrap(WORLD.model, "test", source=WORLD.source, preset="paper")
    own = wrap(WORLD.model, "test", source=WORLD.source, score=lambda out, _: out.features.sum(dim=1))
    assert paper.config["threshold"].startswith("Otsu")
    assert own.config["threshold"].startswith("Otsu")
    with pytest.raises(ValueError, match=r"needs to know what source samples score.*Evidence\(quantiles"):
        wrap(WORLD.model, source=WORLD.source, threshold="evidence", score=lambda out, _: out.features.sum(dim=1))
    with pytest.raises(ValueError, match="share of the right answers"):
        Evidence(budget=1.0)
    with pytest.raises(ValueError, match="increasing"):
        Evidence(quantiles=(0.1, 0.3, 0.2))
    with pytest.raises(ValueError, match=r"right are at least three increasing numbers.*got 0.3, 0.2\."):
        Evidence(quantiles=(0.1, 0.2, 0.3), right=(0.3, 0.2))


def test_bytes_and_floats_are_gathered_alike():
    network = models.load("cifar10-resnet26")
    pictures = torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    adapter = wrap(network, source=network.source)
    adapter(pictures[:20])
    adapter(pictures[20:].float() / 255)
    gathered = adapter.method.gathered.so_far(pictures.float())
    torch.testing.assert_close(gathered, pictures.float() / 255)


def test_inputs_gathered_in_half_precision_are_no_reason_to_undo_an_update():
    half = copy.deepcopy(WORLD.model).half()
    x = (1500 + WORLD.x).half()
    source = SourceStats.fit(half, [(x, WORLD.y)], 4, progress=False)
    adapter = wrap(half, "ttac", source=source)
    for batch in x[:60].split(10):
        assert adapter(batch).learned
    assert not adapter.rails.gathered.so_far(x).norm().isfinite(), "or this shows nothing"
