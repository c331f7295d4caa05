"""Inputs that people really have: bytes, named tensors, records as answers, probabilities, TorchScript."""

import warnings

import pytest
import torch
from torch import nn

from owttt import METHODS, SourceStats, models, wrap
from owttt.network.inputs import Fields
from tests.world import CLASSES, make_world

WORLD = make_world(dtype=torch.float32)


class Named(nn.Module):
    """A network that takes its pixels by name, as those of Hugging Face do, and answers with a dictionary."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values, scale=None):
        return {"logits": self.model(pixel_values if scale is None else pixel_values * scale[:, None, None, None])}


class OneDictionary(Named):
    def forward(self, batch):
        return super().forward(**batch)


def named(x, y=None):
    batch = {"pixel_values": x, "scale": torch.ones(len(x))}
    return batch if y is None else {**batch, "labels": y}


@pytest.mark.parametrize("kind", [Named, OneDictionary])
@pytest.mark.parametrize("method", METHODS)
def test_named_tensors_give_what_a_tensor_gives(kind, method, tmp_path):
    plain = wrap(WORLD.model, method, source=WORLD.source)
    model = kind(WORLD.model)
    source = SourceStats.fit(model, [named(WORLD.x, WORLD.y)], CLASSES, progress=False)
    source.save(tmp_path / "s")
    by_name = wrap(model, method, source=SourceStats.load(tmp_path / "s"))
    for x, y in WORLD.stream:
        mine, theirs = by_name(named(x, y)), plain(x)
        assert torch.equal(mine.labels, theirs.labels)
        assert torch.allclose(mine.scores, theirs.scores, atol=1e-6)
    assert torch.equal(by_name.predict(named(x)).labels, plain.predict(x).labels)


def test_named_tensors_are_checked():
    model = Named(WORLD.model)
    adapter = wrap(model, "test", source=SourceStats.fit(model, [named(WORLD.x, WORLD.y)], CLASSES, progress=False))
    x = WORLD.x[:4]
    for wrong, message in (
        (x, r"Expected named tensors \['pixel_values', 'scale'\], as the source data had, got one tensor"),
        ({"pixel_values": x}, r"got named tensors \['pixel_values'\]"),
        ({"pixel_values": x[:, :, 1:], "scale": torch.ones(4)}, r"Expected a batch of shape \(B, 1, 8, 8\)"),
        ({"pixel_values": x, "scale": torch.ones(3)}, "Expected as many samples under every name"),
        ({"pixel_values": x, "scale": torch.full((4,), torch.nan)}, "NaN or Inf"),
    ):
        with pytest.raises(ValueError, match=message):
            adapter(wrong)
    with pytest.raises(TypeError, match=r"named tensors, got \{'pixel_values': 'list'\}"):
        adapter({"pixel_values": [1], "scale": torch.ones(1)})
    with pytest.raises(ValueError, match="named tensors with labels"):
        SourceStats.fit(model, [named(WORLD.x)], CLASSES, progress=False)
    with pytest.raises(ValueError, match="at least one named tensor"):
        Fields({})


def test_bytes_are_what_pixels_are():
    model = models.load("cifar10-resnet26")
    pixels = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for method in ("test", "owttt"):
        by_byte, by_float = (wrap(model, method, source=model.source) for _ in range(2))
        assert torch.allclose(by_byte(pixels).scores, by_float(pixels.float() / 255).scores, atol=1e-5)
    with pytest.raises(TypeError, match=r"Expected a batch of torch\.float32, got torch\.uint8"):
        wrap(WORLD.model, "test", source=WORLD.source)(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        by_byte(pixels.long())


class Tuple(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x), x.mean()


def test_a_tuple_is_refused_with_the_way_out():
    with pytest.raises(
        ValueError, match=r"must return logits .* got tuple\. Wrap it in a module that returns the logits"
    ):
        SourceStats.fit(Tuple(WORLD.model), [(WORLD.x, WORLD.y)], CLASSES, progress=False)


def test_probabilities_are_noticed():
    with pytest.warns(UserWarning, match="outputs are probabilities .*take the softmax off"):
        SourceStats.fit(nn.Sequential(WORLD.model, nn.Softmax(dim=1)), [(WORLD.x, WORLD.y)], CLASSES, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SourceStats.fit(WORLD.model, [(WORLD.x, WORLD.y)], CLASSES, progress=False)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_torch_script_is_refused():
    script = torch.jit.trace(WORLD.model.eval(), WORLD.x[:2])
    with pytest.raises(TypeError, match="TorchScript, whose frozen graph cannot be adapted"):
        SourceStats.fit(script, [(WORLD.x, WORLD.y)], CLASSES, progress=False)


def test_what_a_prediction_carries():
    names = [f"class {number}" for number in range(CLASSES)]
    adapter = wrap(WORLD.model, "test", source=WORLD.source, classes=names)
    out = adapter(torch.cat([x for x, _ in WORLD.stream]))
    assert torch.equal(out.known, out.labels >= 0)
    assert 0 < int(out.known.sum()) < len(out), "or the rest shows nothing"
    assert torch.equal(out.closed, out.logits.argmax(dim=1))
    assert torch.equal(out.labels[out.known], out.closed[out.known])
    head = WORLD.model.eval()(torch.cat([x for x, _ in WORLD.stream])).softmax(dim=1)
    assert torch.allclose(out.confidence, head.gather(1, out.closed[:, None])[:, 0], atol=1e-5)
    expected = ["unknown" if label < 0 else names[label] for label in out.labels.tolist()]
    assert out.names == expected
    assert out.label is out.labels
    assert out.score is out.scores
    with pytest.raises(ValueError, match=r"wrap\(…, classes="):
        _ = wrap(WORLD.model, "test", source=WORLD.source)(WORLD.x[:3]).names
    with pytest.raises(ValueError, match=r"have \d+ classes, got 1 names"):
        wrap(WORLD.model, "test", source=WORLD.source, classes=["one"])
    assert wrap(WORLD.model, "test", source=WORLD.source, score="centred").config["score"] == "centered"
