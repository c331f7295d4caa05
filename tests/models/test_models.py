"""Networks have their published shapes; a source model cannot be fed wrongly without an error."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import owttt
from owttt import models
from owttt._utils.optional import require
from owttt.models import NETWORKS, Preprocessing, SourceModel, build, cifar_resnet, imagenet
from owttt.models.registry import WEIGHTS
from owttt.models.resnet import Bottleneck, ResNet
from owttt.training import accuracy, batches


@pytest.mark.parametrize(("depth", "parameters"), [(20, 272474), (26, 369690), (32, 466906), (56, 855770)])
def test_depths(depth, parameters):
    model = cifar_resnet(depth).eval()
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    projections = sum(p.numel() for n, p in model.named_parameters() if "shortcut" in n)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert projections == 2752


def test_features_are_the_pooled_channels():
    model = cifar_resnet(20, num_classes=3, width=8).eval()
    x, y = torch.rand(9, 3, 32, 32), torch.arange(9) % 3
    source = owttt.SourceStats.fit(model, [(x, y)], 3)
    assert source.info.feature_point == "input:fc"
    assert source.mean.shape == (32,)


def test_depth_must_be_6n_plus_2():
    with pytest.raises(ValueError, match="6n \\+ 2"):
        cifar_resnet(21)


@pytest.mark.parametrize(("name", "features", "parameters"), [("resnet18", 512, 11.17e6), ("resnet50", 2048, 23.5e6)])
def test_the_large_networks_with_the_small_stem(name, features, parameters):
    model = build(name, 10).eval()
    assert model.fc.in_features == features
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(parameters, rel=0.01)
    assert model.stages(model.conv(torch.rand(1, 3, 32, 32))).shape[2:] == (4, 4)


def test_the_large_stem():
    model = ResNet(Bottleneck, (1, 1, 1, 1), 5, width=8, stem="large", eps=1e-3).eval()
    assert model(torch.rand(1, 3, 64, 64)).shape == (1, 5)
    assert {m.eps for m in model.modules() if isinstance(m, nn.BatchNorm2d)} == {1e-3}


def test_networks_by_name():
    for name in NETWORKS:
        assert isinstance(build(name, 3, width=32 if name == "vit" else 4), nn.Module)
    with pytest.raises(ValueError, match=r"No network 'resnet21'\. Did you mean resnet"):
        build("resnet21", 3)
    with pytest.raises(ValueError, match="width of its own"):
        build("timm:resnet10t", 3, width=4)
    with pytest.raises(
        ImportError, match=r"Things need nothing_like_it, which is not installed: pip install 'owttt\[x\]'"
    ):
        require("nothing_like_it", "Things", extra="x")


def identity(**changes):
    return SourceModel(nn.Identity(), Preprocessing(4, **changes), ("a",)).eval()


def test_preprocessing_is_the_models():
    x = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    model = identity(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    expected = (x.double().numpy() / 255 - np.array([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1)) / np.array(
        [0.5, 0.6, 0.7]
    ).reshape(1, 3, 1, 1)
    assert np.allclose(model(x).numpy(), expected, atol=1e-6)
    assert torch.equal(model(x.float() / 255), model(x))
    keras = identity(mean=(103.939, 116.779, 123.68), std=(1.0, 1.0, 1.0), scale=255, bgr=True)
    blue_green_red = x.double().numpy()[:, ::-1] - np.array([103.939, 116.779, 123.68]).reshape(1, 3, 1, 1)
    assert np.allclose(keras(x).numpy(), blue_green_red, atol=1e-4)
    assert Preprocessing.parse(keras.preprocessing.describe()) == keras.preprocessing


def test_wrong_input_is_refused():
    model = identity()
    with pytest.raises(ValueError, match=r"Expected images \(B, 3, H, W\), got \(2, 1, 4, 4\)"):
        model(torch.rand(2, 1, 4, 4))
    with pytest.raises(ValueError, match=r"Float images must be in 0 … 1, got values up to 255.*Do not normalize"):
        model(torch.full((1, 3, 4, 4), 255.0))
    with pytest.raises(ValueError, match="Float images must be in 0 … 1, got values up to nan"):
        model(torch.full((1, 3, 4, 4), float("nan")))
    with pytest.raises(ValueError, match=r"Expected images of 4 × 4 pixels, got 5 × 4"):
        model(torch.rand(1, 3, 5, 4))
    for dtype in (torch.int64, torch.bool):
        with pytest.raises(ValueError, match="uint8 or float, got torch"):
            model(torch.zeros(1, 3, 4, 4, dtype=dtype))
    assert model(torch.randn(1, 3, 4, 4).clamp(-3, 3)).shape == (1, 3, 4, 4), "noise in normalized space is fine"
    assert model.train()(torch.rand(1, 3, 8, 8)).shape == (1, 3, 8, 8), "training may use other sizes"


def test_some_classes_only():
    model = SourceModel(cifar_resnet(8, 5, 8).eval(), Preprocessing(16), "abcde", ["A", "B", "C", "D", "E"])
    x = torch.rand(4, 3, 16, 16)
    some = model.only(["d", "b"])
    assert torch.allclose(some(x), model(x)[:, [3, 1]])
    assert some.names == ("D", "B")
    assert model(x).shape == (4, 5), "the whole one is untouched"
    with pytest.raises(ValueError, match=r"does not know \['z'\]"):
        model.only(["a", "z"])
    with pytest.raises(ValueError, match="no linear layer with 1 outputs"):
        identity().only(["a"])


def test_a_model_without_statistics_says_so():
    with pytest.raises(ValueError, match="no source statistics"):
        _ = identity().source
    assert not identity().has_source


def test_names():
    with pytest.raises(ValueError, match=r"No model 'imagenet-resnet-50'\. Did you mean imagenet-resnet50"):
        models.load("imagenet-resnet-50")


@pytest.mark.parametrize("name", models.shipped())
def test_a_shipped_model(name):
    model = models.load(name)
    card = model.card
    assert sum(p.numel() for p in model.network.parameters()) == card["parameters"]
    adapter = owttt.wrap(model, source=model.source)
    points = model.preprocessing.points
    for samples in (8, 130):  # a small batch is gathered, a large one searched
        out = adapter(torch.rand(samples, 3, 32, 32) if points is None else torch.rand(samples, points, 3))
        assert len(out) == samples
    assert not model.training
    size = sum(path.stat().st_size for path in (WEIGHTS / name).iterdir())
    assert size < 12e6


ASKED = {
    "cifar10-resnet11": 93,
    "cifar100-resnet11": 70,
    "cifar10-resnet26": 91,
    "cifar10-vit": 76,
    "modelnet10-dgcnn": 88,
}


@pytest.mark.parametrize(("name", "least"), ASKED.items())
def test_shipped_models_are_as_good_as_asked(name, least):
    assert models.load(name).card["clean"] >= least


def test_the_cifar10_model_on_real_images():
    try:
        real = owttt.data.load("cifar10").subset(range(400))
    except FileNotFoundError:
        pytest.skip("CIFAR-10 is not here; `owttt data get cifar10` fetches it")
    assert accuracy(models.load("cifar10-resnet11"), batches(real)) > 90
    assert accuracy(models.load("cifar10-resnet26"), batches(real)) > 87
    assert accuracy(models.load("cifar10-vit"), batches(real)) > 70


def test_the_model_of_clouds_on_real_shapes():
    try:
        real = owttt.data.load("npz:modelnet10_vox30.npz").subset(range(0, 900, 9))
    except FileNotFoundError:
        pytest.skip("modelnet10_vox30.npz is not in the data root")
    model = models.load("modelnet10-dgcnn")
    framed = [(model.preprocessing.frame(x), y) for x, y in batches(real)]
    assert accuracy(model, framed) > 80


def test_imagenet_classes():
    wnids, names = imagenet.classes()
    assert len(set(wnids)) == 1000
    assert list(wnids) == sorted(wnids)
    assert names[0] == "tench"
    assert names[999] == "toilet tissue"


def keras_weights(random):
    """Return random weights under Keras' names."""
    shapes = {"conv1": (7, 7, 3, 64)}
    inputs = 64
    for stage, count, width in zip("2345", (3, 4, 6, 3), (64, 128, 256, 512), strict=True):
        for letter in "abcdef"[:count]:
            block = f"{stage}{letter}_branch"
            if letter == "a":
                shapes[f"res{block}1"] = (1, 1, inputs, 4 * width)
            shapes[f"res{block}2a"] = (1, 1, inputs, width)
            shapes[f"res{block}2b"] = (3, 3, width, width)
            shapes[f"res{block}2c"] = (1, 1, width, 4 * width)
            inputs = 4 * width
    arrays = {}
    for name, shape in shapes.items():
        norm = "bn_conv1" if name == "conv1" else name.replace("res", "bn")
        arrays[f"{name}/kernel"] = random.normal(size=shape) / np.sqrt(np.prod(shape[:3]))
        arrays[f"{name}/bias"] = random.normal(size=shape[3])
        for part in ("gamma", "moving_variance"):
            arrays[f"{norm}/{part}"] = random.uniform(0.5, 1.5, shape[3])
        for part in ("beta", "moving_mean"):
            arrays[f"{norm}/{part}"] = random.normal(size=shape[3])
    arrays |= {"fc1000/kernel": random.normal(size=(2048, 1000)), "fc1000/bias": random.normal(size=1000)}
    return {name: array.astype("<f4") for name, array in arrays.items()}


def write_tfjs(package, arrays):
    """Write arrays as TensorFlow.js does: a list of shapes, and their bytes in shards."""
    folder = package / "ResNet50"
    folder.mkdir(parents=True)
    content = b"".join(array.tobytes() for array in arrays.values())
    shards = {"one.bin": content[:999], "two.bin": content[999:]}
    for name, part in shards.items():
        (folder / name).write_bytes(part)
    weights = [{"name": name, "shape": array.shape, "dtype": "float32"} for name, array in arrays.items()]
    manifest = {"weightsManifest": [{"paths": list(shards), "weights": weights}]}
    (folder / "model.json").write_text(json.dumps(manifest))


def keras_forward(arrays, x):
    """ResNet-50 v1 as Keras runs it, layer by layer."""

    def unit(x, conv, norm, stride=1, padding=0):
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if name.startswith((conv, norm))}
        x = F.conv2d(x, tensors[f"{conv}/kernel"].permute(3, 2, 0, 1), tensors[f"{conv}/bias"], stride, padding)
        parts = (tensors[f"{norm}/{part}"] for part in ("moving_mean", "moving_variance", "gamma", "beta"))
        return F.batch_norm(x, *parts, eps=1e-3)

    x = F.relu(unit(x, "conv1", "bn_conv1", 2, 3))
    x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)
    for stage, count in zip("2345", (3, 4, 6, 3), strict=True):
        for letter in "abcdef"[:count]:
            res, bn = f"res{stage}{letter}_branch", f"bn{stage}{letter}_branch"
            stride = 2 if letter == "a" and stage != "2" else 1
            shortcut = unit(x, f"{res}1", f"{bn}1", stride) if letter == "a" else x
            y = F.relu(unit(x, f"{res}2a", f"{bn}2a", stride))
            y = F.relu(unit(y, f"{res}2b", f"{bn}2b", padding=1))
            x = F.relu(shortcut + unit(y, f"{res}2c", f"{bn}2c"))
    return x.mean(dim=(2, 3)) @ torch.from_numpy(arrays["fc1000/kernel"]) + torch.from_numpy(arrays["fc1000/bias"])


def test_keras_weights_are_converted_and_a_foreign_model_is_refused(tmp_path, monkeypatch):
    arrays = keras_weights(np.random.default_rng(0))
    write_tfjs(tmp_path / "package", arrays)
    monkeypatch.setattr(
        imagenet.NpmPackage, "fetch", lambda self, target, work: self.unpack(tmp_path / "package", target)
    )
    network = build("resnet50-keras", 1000).eval()
    network.load_state_dict(imagenet._keras_resnet50(tmp_path))
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(network(x), keras_forward(arrays, x), rtol=1e-3, atol=1e-3)

    write_tfjs(tmp_path / "package", arrays)
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path / "root"))
    with pytest.raises(OSError, match="what came is not the expected model"):
        models.load("imagenet-resnet50")
    assert not (tmp_path / "root" / "models" / "imagenet-resnet50" / "model.safetensors").exists()
