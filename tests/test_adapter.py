import subprocess
import sys

import pytest
import torch
from torch import nn

import owttt
from owttt import METHODS, PRESETS, UNKNOWN, Fixed, Otsu, SourceStats, state, wrap
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
    assert list(METHODS) == ["test", "bn", "tent", "shot", "ttt++", "ttac", "owttt"]


@pytest.mark.parametrize("method", METHODS)
def test_a_prediction_says_all_it_should(method):
    out = wrap(WORLD.model, method, source=WORLD.source)(X)
    assert out.label.dtype == torch.int64
    assert out.label.shape == out.score.shape == (len(X),)
    assert out.logits.shape == (len(X), CLASSES)
    assert out.threshold.shape == ()
    known = out.label != UNKNOWN
    assert 0 < int(known.sum()) < len(X)
    assert torch.equal(out.label[known], out.logits.argmax(dim=1)[known])
    assert torch.equal(known, out.score < out.threshold)
    assert not any(value.requires_grad for value in (out.score, out.logits, out.threshold))


def test_the_causal_order_predicts_before_it_learns():
    frozen, learning = wrap(WORLD.model, "test", source=WORLD.source), wrap(WORLD.model, source=WORLD.source)
    first, second = frozen(X), learning(X)
    assert torch.equal(first.score, second.score)
    assert not torch.equal(frozen(X).score, learning(X).score)
    later = wrap(WORLD.model, source=WORLD.source, order="adapt-then-predict")
    assert not torch.equal(later(X).score, first.score)


def test_predict_is_what_the_next_call_would_say():
    adapter = wrap(WORLD.model, source=WORLD.source)
    adapter(X)
    before = whole(adapter)
    peek = adapter.predict(WORLD.stream[1][0])
    assert unchanged(adapter, before)
    out = adapter(WORLD.stream[1][0])
    assert torch.equal(peek.label, out.label)
    assert torch.equal(peek.threshold, out.threshold)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("method", METHODS)
def test_adapts_the_same_inside_the_caller_s_contexts(method, context):
    plain, inside = (wrap(WORLD.model, method, source=WORLD.source) for _ in range(2))
    for x, _ in WORLD.stream[:3]:
        expected = plain(x)
        with context():
            out = inside(x.clone())
        assert torch.equal(out.score, expected.score)
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
    (X.tolist(), TypeError, "torch.Tensor, got list"),
]


@pytest.mark.parametrize(("x", "error", "message"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("order", ["predict-then-adapt", "adapt-then-predict"])
def test_bad_input_is_told_before_anything_changes(x, error, message, order):
    adapter = wrap(WORLD.model, source=WORLD.source, order=order)
    adapter(X)
    before = whole(adapter)
    with pytest.raises(error, match=message):
        adapter(x)
    with pytest.raises(error, match=message):
        adapter.predict(x)
    assert unchanged(adapter, before)


def test_bad_wrapping_is_told():
    def attempt(method="owttt", **options):
        return wrap(WORLD.model, method, source=WORLD.source, **options)

    with pytest.raises(ValueError, match=r"No method 'tend'; choose one of \['bn', 'owttt', 'shot'"):
        attempt("tend")
    with pytest.raises(TypeError, match=r"'tent' has no option \['learning_rate'\]; it takes \['lr', 'momentum'"):
        attempt("tent", learning_rate=1.0)
    with pytest.raises(ValueError, match="order must be one of"):
        attempt(order="predict")
    with pytest.raises(ValueError, match="No score 'cosin'"):
        attempt(score="cosin")
    with pytest.raises(ValueError, match="No threshold 'otsu'"):
        attempt(threshold="otsu")
    with pytest.raises(ValueError, match="must be ordered"):
        attempt(threshold=(1.0, 0.4))
    with pytest.raises(ValueError, match="got NaN"):
        attempt(threshold=float("nan"))
    with pytest.raises(ValueError, match="at least one row"):
        attempt(window=0)
    with pytest.raises(ValueError, match="classifier must be"):
        attempt(classifier="mean")
    with pytest.raises(ValueError, match="No preset 'cifar'"):
        attempt(preset="cifar")
    with pytest.raises(ValueError, match="configured already"):
        attempt(Tent(), lr=1.0)
    for option, value in (("clustering", "all"), ("keep_rate", 0.0), ("temperature", 0.0), ("pool_size", 0)):
        with pytest.raises(ValueError, match=f"{option}|queue"):
            attempt(**{option: value})
    with pytest.raises(ValueError, match="alpha"):
        attempt("bn", alpha=2.0)
    with pytest.raises(ValueError, match="optimiser"):
        attempt("tent", optimiser="lbfgs")
    with pytest.raises(ValueError, match="one score a sample, 40, got shape"):
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
    with pytest.raises(ValueError, match="'tent' trains the scale and shift of normalisation layers"):
        wrap(model, "tent", source=source)


def test_what_was_used_is_readable():
    adapter = wrap(WORLD.model, source=WORLD.source, preset="cifar100-c", keep_rate=0.75, threshold=(0.4, 1.0))
    config = adapter.config
    assert config["options"]["lr"] == 1e-4
    assert config["options"]["keep_rate"] == 0.75
    assert (config["order"], config["protocol"]) == ("predict-then-adapt", "paper")
    assert config["threshold"] == "Otsu(weighted=True, low=0.4, high=1.0)"
    assert "keep_rate" in repr(adapter)
    released = wrap(WORLD.model, "bn", source=WORLD.source, order="adapt-then-predict", score="energy", threshold=0.3)
    assert released.config["protocol"] == "released"
    assert (released.config["score"], released.config["threshold"]) == ("energy", "Fixed(value=0.3)")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_presets_fit_their_methods(preset, method):
    options = wrap(WORLD.model, method, source=WORLD.source, preset=preset).config["options"]
    assert options.items() >= dict(PRESETS[preset].options.get(method, {})).items()


def test_presets_are_the_paper_s():
    owttt = {name: (p.options["owttt"]["lr"], p.options["owttt"]["alignment_weight"]) for name, p in PRESETS.items()}
    assert owttt == {
        "cifar10-c": (1e-3, 1.0),
        "cifar100-c": (1e-4, 1.0),
        "imagenet-c": (2.5e-5, 0.4),
        "imagenet-r": (2.5e-5, 0.4),
        "visda-c": (2.5e-5, 0.04),
    }
    assert [p.batch_size for p in PRESETS.values()] == [256, 256, 128, 128, 128]


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
    ]:
        rule = wrap(WORLD.model, "test", source=WORLD.source, threshold=given).detector.threshold
        assert float(rule(scores)) == pytest.approx(expected)


def test_the_head_can_classify():
    adapter = wrap(WORLD.model, "test", source=WORLD.source, classifier="head", threshold="off")
    assert torch.equal(adapter(X).label, WORLD.model(X).argmax(dim=1))


def test_a_method_instance_is_copied():
    method = OWTTT(lr=1e-2)
    first, second = (wrap(WORLD.model, method, source=WORLD.source) for _ in range(2))
    first(X)
    assert method.optimizer is None
    assert unchanged(second, whole(wrap(WORLD.model, "owttt", source=WORLD.source)))


def test_states_resume_in_a_new_process(tmp_path):
    expected = {}
    for method in METHODS:
        adapter = wrap(WORLD.model, method, source=WORLD.source)
        for x, _ in WORLD.stream[:4]:
            adapter(x)
        adapter.save(tmp_path / method)
        expected[method] = torch.cat([adapter(x).score for x, _ in WORLD.stream[4:]])
    program = f"""
import pathlib, torch
from owttt import METHODS, wrap
from tests.world import make_world
folder, world = pathlib.Path({str(tmp_path)!r}), make_world(dtype=torch.float32)
def resumed(method):
    adapter = wrap(world.model, method, source=world.source).restore(folder / method)
    return torch.cat([adapter(x).score for x, _ in world.stream[4:]])
torch.save({{method: resumed(method) for method in METHODS}}, folder / "scores")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    found = torch.load(tmp_path / "scores", weights_only=True)
    assert [method for method in METHODS if not torch.equal(expected[method], found[method])] == []


def test_a_state_that_does_not_belong_here_is_told(tmp_path):
    adapter = wrap(WORLD.model, source=WORLD.source)
    adapter(X)
    path = tmp_path / "state.safetensors"
    adapter.save(path)
    other = wrap(WORLD.model, source=WORLD.source, lr=1e-2, threshold=0.3)
    before = whole(other)
    with pytest.raises(ValueError, match=r"made differently. options: file .*'lr': 0.001.*threshold: file 'Otsu"):
        other.restore(path)
    path.write_bytes(path.read_bytes()[:-3] + b"abc")
    with pytest.raises(ValueError, match="checksum"):
        wrap(WORLD.model, source=WORLD.source).restore(path)
    assert unchanged(other, before)
    WORLD.source.save(path)
    with pytest.raises(ValueError, match="holds 'source statistics'"):
        adapter.restore(path)


def test_a_caller_cannot_switch_it_to_train_mode():
    adapter = wrap(WORLD.model, source=WORLD.source)
    adapter.train()
    assert not any(module.training for module in adapter.modules())


def test_moving_to_another_type_takes_everything_along():
    adapter = wrap(WORLD.model, source=WORLD.source)
    adapter(X)
    adapter.double()
    assert adapter(X.double()).score.dtype == torch.float64
    assert WORLD.source.prototypes.dtype == torch.float32
    adapter.reset()
    first = wrap(WORLD.model, source=WORLD.source)(X).score
    torch.testing.assert_close(adapter(X.double()).score.float(), first)


def test_half_precision_networks_work():
    model = make_world(dtype=torch.float32).model
    half = type(model)().to(torch.bfloat16)
    half.load_state_dict(model.state_dict())
    source = SourceStats.fit(half, [(WORLD.x.bfloat16(), WORLD.y)], CLASSES)
    for method in METHODS:
        out = wrap(half, method, source=source)(X.bfloat16())
        assert out.score.dtype == torch.float32
        assert out.score.isfinite().all()


def test_divergence_is_told_not_hidden():
    adapter = wrap(WORLD.model, "ttac", source=WORLD.source, lr=1e30)
    with pytest.raises(FloatingPointError, match=r"diverged. Call reset\(\)"):
        [adapter(x) for x, _ in WORLD.stream]
    adapter.reset()
    adapter.predict(X)
