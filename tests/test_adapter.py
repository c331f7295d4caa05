import copy
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

import owttt
from owttt import METHODS, PRESETS, UNKNOWN, Evidence, Fixed, Method, Otsu, SourceStats, wrap
from owttt._utils import state
from owttt._utils import tensors as tensor_files
from owttt.methods import OWTTT, Tent
from tests.world import CLASSES, make_world

WORLD = make_world(dtype=torch.float32)
X = WORLD.stream[0][0]


def whole(adapter):
    return state.snapshot(adapter, adapter.method.optimizer)


def unchanged(adapter, before):
    after = whole(adapter)
    return after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)


def test_the_public_face():
    for name in ("SourceStats", "wrap", "METHODS", "UNKNOWN", "OpenWorldMetrics", "Prediction", "Method", "PRESETS"):
        assert hasattr(owttt, name)
    assert owttt.UNKNOWN == -1
    assert list(METHODS) == ["test", "bn", "tent", "shot", "ttt++", "ttac", "owttt", "owttt+"]


@pytest.mark.parametrize("method", METHODS)
def test_a_prediction_says_all_it_should(method):
    out = wrap(WORLD.model, method, preset="paper", source=WORLD.source)(X)
    assert out.labels.dtype == torch.int64
    assert out.labels.shape == out.scores.shape == (len(X),)
    assert out.logits.shape == (len(X), CLASSES)
    assert out.threshold.shape == ()
    known = out.labels != UNKNOWN
    assert 0 < int(known.sum()) < len(X)
    assert torch.equal(out.labels[known], out.logits.argmax(dim=1)[known])
    assert torch.equal(known, out.scores < out.threshold)
    assert not any(value.requires_grad for value in (out.scores, out.logits, out.threshold))


def test_the_causal_order_predicts_before_it_learns():
    frozen, learning = (
        wrap(WORLD.model, "test", source=WORLD.source),
        wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source),
    )
    first, second = frozen(X), learning(X)
    assert torch.equal(first.scores, second.scores)
    assert not torch.equal(frozen(X).scores, learning(X).scores)
    later = wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source, order="adapt-then-predict")
    assert not torch.equal(later(X).scores, first.scores)


def test_predict_is_what_the_next_call_would_say():
    adapter = wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source)
    adapter(X)
    before = whole(adapter)
    peek = adapter.predict(WORLD.stream[1][0])
    assert unchanged(adapter, before)
    out = adapter(WORLD.stream[1][0])
    assert torch.equal(peek.labels, out.labels)
    assert torch.equal(peek.threshold, out.threshold)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("method", METHODS)
def test_adapts_the_same_inside_the_caller_s_contexts(method, context):
    plain, inside = (wrap(WORLD.model, method, preset="paper", source=WORLD.source) for _ in range(2))
    for x, _ in WORLD.stream[:3]:
        expected = plain(x)
        with context():
            out = inside(x.clone())
        assert torch.equal(out.scores, expected.scores)
    assert unchanged(inside, whole(plain))


BAD = [
    (X[:, :, :7], ValueError, r"shape \(B, 1, 8, 8\), as the source data had, got \(40, 1, 7, 8\)"),
    (X[0], ValueError, r"got \(1, 8, 8\)"),
    (X[:0], ValueError, "at least one sample"),
    (X.double(), TypeError, r"torch.float32, got torch.float64; convert it with x.to\(torch.float32\)"),
    (X.long(), TypeError, "got torch.int64"),
    (X.index_fill(0, torch.tensor([2, 5]), torch.nan), ValueError, r"NaN or Inf in 2 of 40 samples: \[2, 5\]"),
    (X.index_fill(0, torch.tensor([1]), torch.inf), ValueError, r"in 1 of 40 samples: \[1\]"),
    (X.to("meta"), ValueError, "adapter is on cpu, the batch on meta"),
    (X.tolist(), TypeError, "torch.Tensor, or as named tensors, got list"),
]


@pytest.mark.parametrize(("x", "error", "message"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("order", ["predict-then-adapt", "adapt-then-predict"])
def test_bad_input_is_told_before_anything_changes(x, error, message, order):
    adapter = wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source, order=order)
    adapter(X)
    before = whole(adapter)
    with pytest.raises(error, match=message):
        adapter(x)
    with pytest.raises(error, match=message):
        adapter.predict(x)
    assert unchanged(adapter, before)


def test_bad_wrapping_is_told():
    def attempt(method="owttt", **options):
        return wrap(WORLD.model, method, **{"preset": "paper", "source": WORLD.source, **options})

    with pytest.raises(ValueError, match=r"No method 'tend'\. Did you mean tent"):
        attempt("tend")
    with pytest.raises(TypeError, match=r"'tent' has no option \['learning_rate'\]; it takes \['lr', 'momentum'"):
        attempt("tent", learning_rate=1.0)
    with pytest.raises(ValueError, match="order must be one of"):
        attempt(order="predict")
    with pytest.raises(ValueError, match="No score 'cosin'"):
        attempt(score="cosin")
    with pytest.raises(ValueError, match="No threshold 'otsu'"):
        attempt(threshold="otsu")
    for bounds in ((1.0, 0.4), (0.4,)):
        with pytest.raises(ValueError, match="two numbers, the lower one first"):
            attempt(threshold=bounds)
    for wrong in ({}, object(), True, Evidence):
        with pytest.raises(TypeError, match="A threshold is a name, a number, two bounds or a callable"):
            attempt(threshold=wrong)
    with pytest.raises(ValueError, match="must be one number, got nan"):
        attempt(threshold=lambda scores: scores.mean() * torch.nan)(X)
    with pytest.raises(TypeError, match="source must be SourceStats"):
        wrap(WORLD.model, source="stats.safetensors")
    with pytest.raises(TypeError, match="method must be a name"):
        attempt(3)
    with pytest.raises(ValueError, match="got NaN"):
        attempt(threshold=float("nan"))
    for window in (0, 5.5, True):
        with pytest.raises(ValueError, match="window must be a whole number of scores"):
            attempt(window=window)
    for names in (["a"] * CLASSES, ["unknown", *map(str, range(1, CLASSES))]):
        with pytest.raises(ValueError, match="must differ from each other"):
            attempt(classes=names)
    with pytest.raises(ValueError, match="classifier must be"):
        attempt(classifier="mean")
    with pytest.raises(ValueError, match="No preset 'cifar'"):
        attempt(preset="cifar")
    with pytest.raises(ValueError, match="configured already"):
        attempt(Tent(), lr=1.0)
    for option, value in (
        ("clustering", "all"),
        ("keep_rate", 0.0),
        ("temperature", 0.0),
        ("pool_size", 0),
    ):
        with pytest.raises(ValueError, match=f"{option}|queue"):
            attempt("owttt", **{option: value})
    with pytest.raises(ValueError, match="alpha"):
        attempt("bn", alpha=2.0)
    with pytest.raises(ValueError, match="optim"):
        attempt("tent", optim="lbfgs")
    with pytest.raises(ValueError, match="one score per sample, 40, got shape"):
        attempt(score=lambda out, _: out.features)(X)


def test_a_source_of_another_model_is_told():
    other = make_world(signed=True, dtype=torch.float32).model
    with pytest.raises(ValueError, match="fitted on another model"):
        wrap(other, source=WORLD.source)


def test_networks_that_cannot_be_adapted_are_told_when_wrapping():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, CLASSES))
    source = SourceStats.fit(model, [(WORLD.x, WORLD.y)], CLASSES)
    with pytest.raises(ValueError, match="'bn' replaces the statistics of BatchNorm layers and this network has none"):
        wrap(model, "bn", source=source)
    with pytest.raises(ValueError, match="'tent' trains the scale and shift of normalization layers"):
        wrap(model, "tent", source=source)


def test_what_was_used_is_readable():
    adapter = wrap(WORLD.model, "owttt", source=WORLD.source, preset="cifar100-c", keep_rate=0.75, threshold=(0.4, 1.0))
    config = adapter.config
    assert config["options"]["lr"] == 1e-4
    assert config["options"]["keep_rate"] == 0.75
    assert config["order"] == "predict-then-adapt"
    assert config["threshold"] == "Otsu(weighted=True, low=0.4, high=1.0, unit=True)"
    assert "keep_rate" in repr(adapter)
    released = wrap(WORLD.model, "bn", source=WORLD.source, order="adapt-then-predict", score="energy", threshold=0.3)
    assert released.config["order"] == "adapt-then-predict"
    assert (released.config["score"], released.config["threshold"]) == ("energy", "Fixed(value=0.3)")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_presets_fit_their_methods(preset, method):
    options = wrap(WORLD.model, method, source=WORLD.source, preset=preset).config["options"]
    assert options.items() >= dict(PRESETS[preset].options.get(method, {})).items()


def test_presets_are_the_paper_s():
    owttt = {
        name: (p.options["owttt"]["lr"], p.options["owttt"]["alignment_weight"])
        for name, p in PRESETS.items()
        if p.options
    }
    assert owttt == {
        "cifar10-c": (1e-3, 1.0),
        "cifar100-c": (1e-4, 1.0),
        "imagenet-c": (2.5e-5, 0.4),
        "imagenet-r": (2.5e-5, 0.4),
        "modelnet40-c": (1e-4, 1.0),
        "visda-c": (2.5e-5, 0.04),
    }
    assert [p.batch_size for p in PRESETS.values()] == [256, 256, 256, 128, 128, 64, 128]
    assert PRESETS["modelnet40-c"].options["owttt"]["pool_score"]


def test_a_method_that_scores_by_itself_takes_no_other_score():
    world = make_world()
    model, source = world.model, world.source
    with pytest.raises(ValueError, match=r"scores by itself \(pool\), and score='energy' would have no effect"):
        wrap(model, "owttt", source=source, preset="modelnet40-c", score="energy")
    assert wrap(model, "owttt", source=source, preset="modelnet40-c").config["score"] == "pool"
    plain = wrap(model, "owttt", source=source, preset="modelnet40-c", pool_score=False, score="energy")
    assert plain.config["score"] == "energy"


def test_thresholds_by_name_number_pair_and_callable():
    scores = torch.tensor([0.1, 0.1, 0.8])
    for given, expected in [
        ("adaptive", 0.11),
        ("off", float("inf")),
        (0.3, 0.3),
        ((0.4, 1.0), 0.4),
        (Otsu(high=0.05), 0.05),
        (Fixed(1.0), 1.0),
        (torch.mean, 1 / 3),
        (torch.tensor(0.25), 0.25),
        (np.float32(0.5), 0.5),
    ]:
        rule = wrap(WORLD.model, "test", source=WORLD.source, threshold=given).detector.threshold
        assert float(rule(scores)) == pytest.approx(expected)


def test_the_head_can_classify():
    adapter = wrap(WORLD.model, "test", source=WORLD.source, classifier="head", threshold="off")
    assert torch.equal(adapter(X).labels, WORLD.model(X).argmax(dim=1))


def test_a_method_instance_is_copied():
    method = OWTTT(lr=1e-2)
    first, second = (wrap(WORLD.model, method, preset="paper", source=WORLD.source) for _ in range(2))
    first(X)
    assert method.optimizer is None
    assert unchanged(second, whole(wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source)))


def test_states_resume_in_a_new_process(tmp_path):
    expected = {}
    for method in METHODS:
        adapter = wrap(WORLD.model, method, preset="paper", source=WORLD.source)
        for x, _ in WORLD.stream[:4]:
            adapter(x)
        adapter.save(tmp_path / method)
        expected[method] = torch.cat([adapter(x).scores for x, _ in WORLD.stream[4:]])
    program = f"""
import pathlib, torch
from owttt import METHODS, wrap
from tests.world import make_world
folder, world = pathlib.Path({str(tmp_path)!r}), make_world(dtype=torch.float32)
def resumed(method):
    adapter = wrap(world.model, method, preset="paper", source=world.source).restore(folder / method)
    return torch.cat([adapter(x).scores for x, _ in world.stream[4:]])
torch.save({{method: resumed(method) for method in METHODS}}, folder / "scores")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    found = torch.load(tmp_path / "scores", weights_only=True)
    assert [method for method in METHODS if not torch.equal(expected[method], found[method])] == []


def test_a_state_that_does_not_belong_here_is_told(tmp_path):
    adapter = wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source)
    adapter(X)
    path = tmp_path / "state.safetensors"
    adapter.save(path)
    other = wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source, lr=1e-2, threshold=0.3)
    before = whole(other)
    with pytest.raises(ValueError, match=r"made differently. options: file .*'lr': 0.001.*threshold: file 'Otsu"):
        other.restore(path)
    path.write_bytes(path.read_bytes()[:-3] + b"abc")
    with pytest.raises(ValueError, match="checksum"):
        wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source).restore(path)
    assert unchanged(other, before)
    WORLD.source.save(path)
    with pytest.raises(ValueError, match="holds 'source statistics'"):
        adapter.restore(path)


def test_a_caller_cannot_switch_it_to_train_mode():
    adapter = wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source)
    adapter.train()
    assert not any(module.training for module in adapter.modules())


def test_moving_to_another_type_takes_everything_along():
    adapter = wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source)
    adapter(X)
    adapter.double()
    assert adapter(X.double()).scores.dtype == torch.float64
    assert WORLD.source.prototypes.dtype == torch.float32
    memory = [value for state in adapter.method.optimizer.state.values() for value in state.values()]
    assert {value.dtype for value in memory} == {torch.float64}
    adapter.reset()
    first = wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source)(X).scores
    torch.testing.assert_close(adapter(X.double()).scores.float(), first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_networks_work(dtype):
    model = make_world(dtype=torch.float32).model
    half = type(model)().to(dtype).eval()
    half.load_state_dict(model.state_dict())
    source = SourceStats.fit(half, [(WORLD.x.to(dtype), WORLD.y)], CLASSES)
    for method in METHODS:
        adapter = wrap(half, method, source=source)
        for x, _ in WORLD.stream:
            out = adapter(x.to(dtype))
        assert out.scores.dtype == torch.float32
        assert out.scores.isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_moving_to_half_keeps_the_digits_of_statistics(method):
    adapter = wrap(WORLD.model, method, preset="paper", source=WORLD.source)
    adapter(X)
    adapter.to(torch.bfloat16)
    assert adapter(X.bfloat16()).scores.isfinite().all()
    assert adapter.method.source.prototypes.dtype == adapter.detector.window.items.dtype == torch.float32


def test_everything_can_be_made_inside_inference_mode(tmp_path):
    with torch.inference_mode():
        source = SourceStats.fit(WORLD.model, [(WORLD.x, WORLD.y)], CLASSES)
        source.save(tmp_path / "source")
        source = SourceStats.load(tmp_path / "source")
        adapters = [wrap(WORLD.model, method, source=source) for method in METHODS]
        for adapter in adapters:
            adapter(X)
            adapter.save(tmp_path / "state")
            adapter.restore(tmp_path / "state")
            adapter(X)
            adapter.reset()
    assert all(adapter(X).scores.isfinite().all() for adapter in adapters)


@pytest.mark.parametrize("alias", [True, False])
def test_shared_weights_are_saved(alias, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, CLASSES))
    if alias:
        model[1].again = model[1].weight
    else:
        model[3].weight = model[1].weight
    source = SourceStats.fit(model, [(WORLD.x, WORLD.y)], CLASSES)
    adapter = wrap(model, "owttt", preset="paper", source=source)
    adapter(X)
    adapter.save(tmp_path / "state")
    again = wrap(model, "owttt", preset="paper", source=source).restore(tmp_path / "state")
    assert torch.equal(adapter(X).scores, again(X).scores)


def test_a_compiled_model_adapts_like_the_plain_one():
    compiled = torch.compile(WORLD.model, backend="eager")
    source = SourceStats.fit(compiled, [(WORLD.x, WORLD.y)], CLASSES)
    plain, through = (
        wrap(WORLD.model, "owttt", preset="paper", source=source),
        wrap(compiled, "owttt", preset="paper", source=source),
    )
    for x, _ in WORLD.stream[:3]:
        assert torch.equal(plain(x).scores, through(x).scores)


def test_adapters_can_be_copied_and_pickled():
    adapter = wrap(WORLD.model, "owttt", preset="paper", source=WORLD.source)
    adapter(X)
    twins = [copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))]
    expected = adapter(X).scores
    assert all(torch.equal(twin(X).scores, expected) for twin in twins)


def test_a_method_cannot_spoil_the_answer():
    class Spoils(Method):
        def adapt(self, x, out, verdict):
            verdict.scores.zero_()

    assert wrap(WORLD.model, Spoils, source=WORLD.source)(X).scores.max() > 0
    assert Spoils.name == "Spoils"


def test_one_absurd_batch_does_not_brick_a_network_without_normalization():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    source = SourceStats.fit(model, [(WORLD.x, WORLD.y)], CLASSES)
    for method in ("owttt", "ttac"):
        adapter = wrap(model, method, source=source)
        adapter(X)
        with pytest.warns(UserWarning, match="40 of 40 samples are nothing like the source data"):
            assert (adapter(X * 1e4).labels == UNKNOWN).all()
        assert adapter(X).scores.isfinite().all()
        unguarded = wrap(model, method, source=source, guard=False)
        unguarded(X)
        unguarded(X * 1e4)
        assert unguarded(X).scores.isfinite().all()


def test_divergence_is_told_not_hidden():
    adapter = wrap(WORLD.model, "ttac", source=WORLD.source, lr=1e30, guard=False)
    with pytest.raises(FloatingPointError, match=r"diverged. Call reset\(\)"):
        [adapter(x) for x, _ in WORLD.stream]
    adapter.reset()
    adapter.predict(X)


class Summing(Method):
    """Remembers the sum of all it was shown, after a while."""

    name = "summing"

    def setup(self):
        self.register_buffer("total", torch.zeros(()))

    def adapt(self, x, out, verdict):
        time.sleep(0.2)
        self.total += x.sum()


def test_a_buffer_may_be_used_again_while_it_is_learned_from():
    adapter, twin = (wrap(WORLD.model, Summing(), source=WORLD.source) for _ in range(2))
    x = torch.cat([x for x, _ in WORLD.stream])
    buffer = x.clone()
    adapter.predict_then_learn(buffer)
    buffer.zero_()
    adapter.settle()
    twin(x)
    assert unchanged(adapter, whole(twin))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda adapter: pickle.loads(pickle.dumps(adapter))])
def test_a_copy_has_what_was_being_learned(copied):
    adapter = wrap(WORLD.model, Summing(), source=WORLD.source)
    adapter.predict_then_learn(torch.cat([x for x, _ in WORLD.stream]))
    other = copied(adapter)
    assert unchanged(other, whole(adapter))
    assert float(other.method.total) != 0


def test_a_state_of_an_earlier_version_is_restored(tmp_path):
    """Which had a name for the statistics in use, and variances of promoted classes."""
    adapter, twin = (wrap(WORLD.model, source=WORLD.source) for _ in range(2))
    x = torch.cat([x for x, _ in WORLD.stream])
    adapter(x)
    adapter.save(tmp_path / "new.safetensors")
    tensors, about = tensor_files.read(tmp_path / "new.safetensors", "adapter state")
    tensors["method.present"] = tensors.pop("method.in_use.value")
    tensors["promoted.variances"] = torch.zeros_like(tensors["promoted.means"])
    tensor_files.write(tmp_path / "old.safetensors", tensors, about)
    assert unchanged(twin.restore(tmp_path / "old.safetensors"), whole(adapter))


def test_a_copy_made_in_inference_mode_can_learn():
    adapter = wrap(WORLD.model, "owttt", source=WORLD.source)
    with torch.inference_mode():
        other = copy.deepcopy(adapter)
    x = torch.cat([x for x, _ in WORLD.stream])
    assert other(x).learned
    assert not unchanged(other, whole(adapter))
    adapter(x)
    assert unchanged(other, whole(adapter))


@pytest.mark.parametrize("method", ["owttt", "ttac", "owttt+"])
def test_learning_in_the_background_keeps_the_autocast_of_the_caller(method):
    adapter, twin = (wrap(WORLD.model, method, source=WORLD.source) for _ in range(2))
    x = torch.cat([x for x, _ in WORLD.stream])
    with torch.autocast("cpu", torch.bfloat16):
        adapter(x)
        twin.predict_then_learn(x)
    twin.settle()
    assert unchanged(twin, whole(adapter))


def test_hooks_of_others_stay():
    adapter = wrap(WORLD.model, "owttt", source=WORLD.source)
    seen = []
    for module in (adapter, adapter.method.network):
        module.register_forward_hook(lambda *_: seen.append(1))
    adapter(X)
    before = len(seen)
    adapter.reset()
    adapter(X)
    assert len(seen) == 2 * before > 0


def test_a_model_that_changes_its_input_is_refused():
    class Shifts(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            x -= 0.1
            return self.inner(x)

    with pytest.raises(ValueError, match="changes its input in place"):
        SourceStats.fit(Shifts(WORLD.model), [(WORLD.x.clone(), WORLD.y)], CLASSES, progress=False)


@pytest.mark.parametrize("method", METHODS)
def test_layers_that_are_called_by_keyword(method):
    class Named(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            inner = self.inner
            x = nn.functional.avg_pool2d(inner.norm(input=inner.conv(x)).relu(), 2)
            return inner.fc(inner.last(input=inner.hidden(x.flatten(1))).relu())

    x = torch.cat([x for x, _ in WORLD.stream])
    named, plain = (
        wrap(Named(WORLD.model), method, source=fitted(Named(WORLD.model))),
        wrap(WORLD.model, method, source=WORLD.source),
    )
    for _ in range(2):
        torch.testing.assert_close(named(x).scores, plain(x).scores)


def fitted(model):
    loader = list(zip(WORLD.x.split(64), WORLD.y.split(64), strict=True))
    return SourceStats.fit(model, loader, CLASSES, progress=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_default_without_batch_norm_in_half_precision(dtype):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    adapter = wrap(model, source=fitted(model)).to(dtype)
    x = torch.cat([x for x, _ in WORLD.stream]).to(dtype)
    assert adapter(x).labels.shape == (len(x),)
    assert adapter(x[:3]).learned
    with_batch_norm = wrap(WORLD.model, source=WORLD.source).to(dtype).method
    assert with_batch_norm.normalization.is_source(with_batch_norm.present)
