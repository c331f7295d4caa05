"""The known faults of the authors' program, one test each."""

import copy
import math

import pytest
import torch

from owttt import SourceStats, wrap
from owttt.methods import OWTTT
from owttt.network.norm import batch_norms
from tests import reference
from tests.world import CLASSES, make_world

ORDERS = ["predict-then-adapt", "adapt-then-predict"]


@pytest.mark.parametrize("keep_rate", [0.5, 1.0])
def test_clustering_gradients_do_not_see_later_batch_norm_statistics(keep_rate):
    """Their graph must be gone before the alignment pass overwrites the statistics it was made with."""
    world = make_world()
    x = world.stream[0][0]
    options = {"keep_rate": keep_rate, "alignment_weight": 0.0, "momentum": 0.0, "lr": 1.0}
    gradients = []
    for alignment in (True, False):
        adapter = wrap(world.model, "owttt", preset="paper", source=world.source, alignment=alignment, **options)
        adapter(x)
        pairs = zip(adapter.method.network.model.parameters(), world.model.parameters(), strict=True)
        gradients.append([before.detach() - after.detach() for after, before in pairs])
    moved = wrap(world.model, "owttt", preset="paper", source=world.source, alignment_weight=0.0)
    moved(x)
    assert not torch.equal(batch_norms(moved.method.network)[0].running_mean, world.model.norm.running_mean)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert max(float(g.abs().max()) for g in gradients[0]) > 0


@pytest.mark.parametrize("method", ["owttt", "ttac"])
@pytest.mark.parametrize("order", ORDERS)
def test_more_samples_than_the_horizon_in_one_batch(method, order):
    world = make_world()
    x = torch.cat([x for x, _ in world.stream]).repeat(6, 1, 1, 1)
    assert len(x) > 1280
    adapter = wrap(world.model, method, preset="paper", source=world.source, order=order)
    adapter(x)
    target = adapter.method.target if method == "owttt" else adapter.method.all
    assert torch.linalg.eigvalsh(target.covariance).min() > -1e-9
    assert adapter(x).scores.isfinite().all()


def only(kinds):
    """A threshold that leaves exactly `kinds = (weak, strong)` samples in a batch of their sum."""
    weak, strong = kinds

    def rule(scores):
        ordered = scores[-(weak + strong) :].sort().values
        return torch.inf * ordered[0].abs() if strong == 0 else ordered[weak]

    return rule


@pytest.mark.parametrize("kinds", [(1, 9), (2, 9), (3, 9), (9, 1), (1, 1), (10, 0), (0, 10), (1, 0), (0, 1)])
@pytest.mark.parametrize("order", ORDERS)
def test_tiny_and_empty_groups_give_no_nan(kinds, order):
    world = make_world()
    adapter = wrap(world.model, "owttt", preset="paper", source=world.source, order=order, threshold=only(kinds))
    size = sum(kinds)
    for x, _ in world.stream[:5]:
        adapter(x[:size])
    assert all(parameter.isfinite().all() for parameter in adapter.method.network.parameters())
    nothing_to_learn = kinds == (0, 1)  # its score is the threshold, so it is no prototype either
    assert torch.equal(adapter.method.network.model.conv.weight, world.model.conv.weight) == nothing_to_learn


@pytest.mark.parametrize("order", ORDERS)
def test_degenerate_scores_reject_nothing(order):
    world = make_world()
    adapter = wrap(world.model, "test", preset="paper", source=world.source, order=order)
    out = adapter(world.stream[0][0][:1])
    assert out.labels.tolist() != [-1]
    assert float(out.threshold) == math.inf
    same = wrap(
        world.model, "test", source=world.source, order=order, score=lambda out, _: out.features[:, 0] * 0 + 1.5
    )
    assert (same(world.stream[0][0]).labels >= 0).all()


def test_prototypes_are_of_true_labels_not_predicted_ones():
    """A class the model never predicts still has a prototype."""
    world = make_world()
    model = copy.deepcopy(world.model)
    with torch.no_grad():
        model.fc.bias[2] = -1e9
    assert not (model(world.x).argmax(dim=1) == 2).any()
    source = SourceStats.fit(model, [(world.x, world.y)], CLASSES)
    torch.testing.assert_close(source.prototypes, world.source.prototypes)
    out = wrap(model, "test", source=source, threshold="off")(world.x)
    assert (out.labels == 2).any()


def test_a_new_prototype_acts_one_batch_late_only_in_the_authors_order():
    world = make_world()
    x = world.stream[0][0]
    options = {"alignment": False, "momentum": 0.0}
    for order, moved in (("predict-then-adapt", True), ("adapt-then-predict", False)):
        adapter = wrap(world.model, "owttt", preset="paper", source=world.source, order=order, **options)
        adapter(x)
        assert int(adapter.method.pool.count) > 0
        assert torch.equal(adapter.method.network.model.conv.weight, world.model.conv.weight) != moved


def test_the_source_is_factorised_once(monkeypatch):
    world = make_world()
    adapter = wrap(world.model, "owttt", preset="paper", source=world.source)
    calls = []
    cholesky = torch.linalg.cholesky_ex

    def counting(matrix):
        calls.append(matrix.shape)
        return cholesky(matrix)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", counting)
    for x, _ in world.stream[:3]:
        adapter(x)
    assert len(calls) == 3, "one a batch, of the target"


@pytest.mark.parametrize(("keep_rate", "expected"), [(0.5, 3), (1.0, 2)])
def test_no_more_passes_than_the_algorithm_needs(keep_rate, expected):
    """The prediction, the samples that cluster, the weak ones that align; never a sample no loss uses."""
    world = make_world()
    x = world.stream[0][0]
    adapter = wrap(world.model, "owttt", preset="paper", source=world.source, keep_rate=keep_rate)
    adapter(x)
    sizes: list[tuple[int, bool]] = []
    adapter.method.network.model.conv.register_forward_hook(lambda m, a, o: sizes.append((len(a[0]), o.requires_grad)))
    out = adapter.predict(x)
    sizes.clear()
    adapter(x)
    weak = int((out.labels >= 0).sum())
    kept = int(weak * 0.5) + int((len(x) - weak) * 0.5)
    passes = [(len(x), False), (kept, True), (weak, True)] if keep_rate < 1 else [(len(x), True), (weak, True)]
    assert sizes == passes
    assert len(sizes) == expected


def test_a_pool_still_empty_trains_on_weak_samples_only_even_if_all_are_kept():
    world = make_world()
    x = world.stream[0][0]
    adapter = wrap(world.model, "owttt", preset="paper", source=world.source, keep_rate=1.0, expansion=False)
    weak = int((adapter.predict(x).labels >= 0).sum())
    sizes: list[int] = []
    adapter.method.network.model.conv.weight.register_hook(lambda _: sizes.append(0))
    adapter.method.network.model.conv.register_forward_hook(lambda m, a, o: sizes.append(len(a[0])))
    adapter(x)
    assert sizes == [len(x), weak, 0, weak, 0]


@pytest.mark.parametrize(
    ("method", "passes"), [("test", 1), ("bn", 1), ("tent", 1), ("shot", 2), ("ttt++", 2), ("ttac", 2)]
)
def test_passes_of_the_competitors(method, passes):
    world = make_world()
    adapter = wrap(world.model, method, preset="paper", source=world.source)
    calls = []
    adapter.method.network.model.conv.register_forward_hook(lambda *_: calls.append(1))
    adapter(world.stream[0][0])
    assert len(calls) == passes


def test_the_loss_is_the_released_one_under_the_papers_constants():
    """da·0.05·[KL + KL] + ce·(CE + CE)/2 at 1e-2 equals L_PC + λ·L_KLD at 1e-3 for da = 1, ce = 0.2, λ = 1."""
    da, ce, lr = 1.0, 0.2, 1e-2
    assert OWTTT().lr == pytest.approx(lr * ce / 2)
    assert OWTTT().alignment_weight / 2 * OWTTT().lr == pytest.approx(lr * da * 0.05)


def test_a_reference_that_rejects_everything_would_be_noticed():
    assert reference.threshold([0.5] * 4) == math.inf
