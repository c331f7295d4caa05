"""Rejected samples become a class, and stop being one."""

import pytest
import torch

from owttt import METHODS, OpenWorldMetrics, wrap
from owttt._utils import state
from tests.world import CLASSES, make_world

WORLD = make_world()
NAMES = [f"class {number}" for number in range(CLASSES)]
X = torch.cat([x for x, _ in WORLD.stream])
Y = torch.cat([y for _, y in WORLD.stream])
ONE = Y == CLASSES
"""Samples of one unknown kind; there are two more."""


def adapter_of(method="test", **options):
    return wrap(WORLD.model, method, source=WORLD.source, classes=NAMES, **options)


def test_a_promoted_class_is_named_and_the_others_are_as_before():
    adapter = adapter_of()
    before = adapter.predict(X)
    adapter.promote(X[ONE][:12], "stranger")
    after = adapter.predict(X)
    named = after.labels == CLASSES
    assert named[ONE].float().mean() > 0.7, "most of its samples, also those it was not made of"
    assert named[Y < CLASSES].float().mean() < 0.1
    assert torch.equal(after.labels[~named], before.labels[~named])
    assert torch.equal(after.scores, before.scores)
    assert torch.equal(after.closed, before.closed)
    assert set(after.names) <= {*NAMES, "stranger", "unknown"}
    metrics = OpenWorldMetrics(CLASSES + 1)
    metrics.update(after, Y)
    assert metrics.compute()["n_known"] == int((Y <= CLASSES).sum())
    adapter.demote("stranger")
    assert torch.equal(adapter.predict(X).labels, before.labels)


def test_the_claim_is_what_the_formula_says():
    adapter = adapter_of()
    made = X[ONE][:12]
    unit = torch.nn.functional.normalize(adapter.predict(made).features, dim=1)
    mean = torch.nn.functional.normalize(unit.mean(dim=0), dim=0)
    away = 1 - unit @ mean
    adapter.promote(made, "stranger")
    out = adapter.predict(X)
    for number in range(len(X)):
        z = out.features[number] / out.features[number].norm()
        near = float(z @ mean)
        known = max(float(z @ prototype) for prototype in WORLD.source.prototypes)
        claimed = near > known and 1 - near <= float(away.mean() + 2 * away.std())
        assert (int(out.labels[number]) == CLASSES) == claimed


def test_methods_learn_from_promoted_samples_as_from_unknown_ones():
    seen = []
    adapter = adapter_of("owttt", preset="paper", threshold="off")
    adapter.promote(X[ONE][:12], "stranger")
    adapt = adapter.method.adapt
    adapter.method.adapt = lambda x, out, verdict: (seen.append(verdict.known.clone()), adapt(x, out, verdict))
    out = adapter(X[:40])
    assert torch.equal(seen[0], out.labels != CLASSES), "with the threshold off all others are known"


@pytest.mark.parametrize("method", METHODS)
def test_it_is_saved_restored_reset_and_rolled_back(method, tmp_path):
    adapter = adapter_of(method)
    adapter.promote(X[ONE][:12], "stranger")
    adapter.promote(X[Y == CLASSES + 1][:12], "Fremder ☃")
    adapter(X[:40])
    adapter.save(tmp_path / "state.safetensors")
    again = adapter_of(method).restore(tmp_path / "state.safetensors")
    assert again.promoted.names == ("stranger", "Fremder ☃")
    assert torch.equal(again(X[40:80]).labels, adapter(X[40:80]).labels)
    again.reset()
    assert again.promoted.names == ("stranger", "Fremder ☃"), "also those that came with the file"
    adapter.reset()
    assert adapter.promoted.names == ("stranger", "Fremder ☃")
    adapter.demote("stranger")
    assert adapter.promoted.names == ("Fremder ☃",)
    assert int(adapter.predict(X[Y == CLASSES + 1]).labels.max()) == CLASSES


def test_what_is_no_class_is_refused_and_changes_nothing():
    adapter = adapter_of()
    adapter.promote(X[:6], "one")
    before = state.snapshot(adapter, None)
    for samples, name, told in (
        (X[:6], "one", "already"),
        (X[:6], "class 0", "trained on"),
        (X[:4], "two", "at least 5"),
        (X[:6], " ", "named by"),
        (X[:6], "unknown", "no class"),
        (X[:6], "x" * 97, "named by"),
        (X[:6, :, :3], "two", "shape"),
    ):
        with pytest.raises(ValueError, match=told):
            adapter.promote(samples, name)
    with pytest.raises(ValueError, match="No promoted class 'two'"):
        adapter.demote("two")
    assert all(torch.equal(value, before[name]) for name, value in state.collect(adapter, None).items())


def test_a_class_is_not_made_of_what_is_nothing_like_the_source():
    adapter = adapter_of("owttt")
    before = state.snapshot(adapter, adapter.method.optimizer)
    for samples in (torch.full((6, 1, 8, 8), 1e38, dtype=X.dtype), 255 * X[:6]):
        with pytest.raises(ValueError, match="6 of 6 samples are nothing like the source data; leave them out"):
            adapter.promote(samples, "bad")
    with pytest.raises(TypeError, match="The name of a class is text, got int"):
        adapter.promote(X[:6], 3)
    after = state.snapshot(adapter, adapter.method.optimizer)
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert adapter(X[:80]).learned
