"""Third-party architectures from timm and torchvision, random weights; needs the `timm` extra."""

import importlib.util

import pytest
import torch

from owttt import SourceStats, wrap

if importlib.util.find_spec("timm") is None or importlib.util.find_spec("torchvision") is None:
    pytest.skip("timm and torchvision are not installed", allow_module_level=True)

# torchvision has no CPU build of this version: its operators are declared here, so that it can be imported.
SHIM = torch.library.Library("torchvision", "DEF")
for schema in ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
               "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"):  # fmt: skip
    SHIM.define(schema)

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

TIMM = {
    "resnet18": "input:fc",
    "vit_tiny_patch16_224": "input:head",
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


def exercise(model, point, methods=("owttt", "tent", "ttac")):
    x = torch.randn(6, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    y = torch.arange(6) % 3
    source = SourceStats.fit(model, [(x, y)], 3, progress=False)
    assert source.info.feature_point == point
    for method in methods:
        adapter = wrap(model, method, source=source)
        first = adapter(x).score
        adapter(x[:1])
        adapter.reset()
        assert torch.equal(adapter(x).score, first)


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    torch.manual_seed(0)
    exercise(timm.create_model(name, num_classes=3), TIMM[name])


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(name):
    torch.manual_seed(0)
    exercise(torchvision.models.get_model(name, weights=None, num_classes=3), TORCHVISION[name], ("owttt",))


def test_two_heads_are_averaged_and_the_last_one_called_has_the_features():
    torch.manual_seed(0)
    model = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=3)
    exercise(model, "input:head_dist", ("owttt",))
