import pytest
import torch

from owttt import SourceStats
from owttt.models import cifar_resnet


@pytest.mark.parametrize(("depth", "parameters"), [(20, 272474), (26, 369690), (56, 855770)])
def test_depths(depth, parameters):
    model = cifar_resnet(depth).eval()
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    projections = sum(p.numel() for n, p in model.named_parameters() if "shortcut" in n)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert projections == 2752


def test_features_are_the_pooled_channels():
    model = cifar_resnet(20, num_classes=3, width=8).eval()
    x, y = torch.rand(9, 3, 32, 32), torch.arange(9) % 3
    source = SourceStats.fit(model, [(x, y)], 3)
    assert source.info.feature_point == "input:fc"
    assert source.mean.shape == (32,)


def test_other_depths_are_told():
    with pytest.raises(ValueError, match="6n"):
        cifar_resnet(21)
