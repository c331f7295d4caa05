"""Statistics that a network normalizes with: measured, swapped, put back."""

import copy

import pytest
import torch
from torch import nn

from owttt.network.features import FeatureExtractor, FeaturePoint
from owttt.network.statistics import FeatureStatistics, LayerStatistics, looks, mixed, normalization
from tests.world import make_world


class Shortcut(nn.Module):
    """A block whose layers are not called in the order in which they are registered."""

    def __init__(self):
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 1)
        self.late, self.early, self.beside = nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        x = self.early(self.stem(x)).relu()
        return self.fc((self.late(self.first(x)) + self.beside(self.second(x))).relu().mean(dim=(2, 3)))


@pytest.fixture
def extractor():
    torch.manual_seed(0)
    network = Shortcut().double().eval()
    for layer in (network.late, network.early, network.beside):
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)
    return FeatureExtractor(network, FeaturePoint("input", "fc"), head=("fc",)).requires_grad_(False)


def test_measured_is_what_train_mode_does(extractor):
    x = torch.randn(9, 3, 5, 5, dtype=torch.float64)
    trained = copy.deepcopy(extractor).train()
    expected = trained(x)
    before = {name: value.clone() for name, value in extractor.state_dict().items()}
    layers = LayerStatistics(extractor)
    statistics, out = layers.measure(x)
    torch.testing.assert_close(out.features, expected.features)
    torch.testing.assert_close(layers.run(x, statistics).features, expected.features)
    assert all(torch.equal(value, before[name]) for name, value in extractor.state_dict().items())


def test_other_samples_see_the_statistics_they_are_given(extractor):
    x, y = torch.randn(9, 3, 5, 5, dtype=torch.float64), torch.randn(4, 3, 5, 5, dtype=torch.float64)
    layers = LayerStatistics(extractor)
    statistics, _ = layers.measure(x)
    literal = copy.deepcopy(extractor)
    place = 0
    for layer in literal.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.copy_(statistics[0, place : place + 4])
            layer.running_var.copy_(statistics[1, place : place + 4])
            place += 4
    torch.testing.assert_close(layers.run(y, statistics).features, literal(y).features)


def test_layers_are_put_back_when_the_network_fails(extractor):
    layers = LayerStatistics(extractor)
    own = layers.source.clone()
    for act in (lambda: layers.measure(torch.randn(2, 9, 5, 5)), lambda: layers.run(torch.randn(2, 9, 5, 5), own + 1)):
        with pytest.raises(RuntimeError):
            act()
        assert torch.equal(layers.source, own)
        assert not any(module._forward_pre_hooks for module in extractor.modules())


def test_mixed_statistics_are_those_of_the_mixture():
    one, two = torch.randn(300, 3, dtype=torch.float64), 2 * torch.randn(100, 3, dtype=torch.float64) + 1

    def of(z):
        return torch.stack((z.mean(dim=0), z.var(dim=0, correction=0)))

    torch.testing.assert_close(mixed(of(one), of(two), 0.25), of(torch.cat((one, two))))


def test_without_batch_norm_the_mean_of_the_features_moves():
    world = make_world(norm=False)
    network = FeatureExtractor(world.model, world.source.feature_point)
    found = normalization(network, world.source)
    assert isinstance(found, FeatureStatistics)
    statistics, out = found.measure(world.x + 1)
    torch.testing.assert_close(out.features.mean(dim=0), world.source.mean)
    torch.testing.assert_close(found.run(world.x, found.source).features, network(world.x).features)
    torch.testing.assert_close(
        found.run(world.x, statistics).features, network(world.x).features - statistics[0] + world.source.mean
    )


def test_looks_stop_at_the_first_layer(extractor):
    called = []
    handle = extractor.model.first.register_forward_hook(lambda *_: called.append(1))
    x = torch.randn(6, 3, 5, 5, dtype=torch.float64)
    given = extractor.model.stem(x).flatten(2)
    seen = looks(extractor, x)
    handle.remove()
    torch.testing.assert_close(seen, torch.stack((given.mean(dim=2), given.std(dim=2, correction=0)), dim=1))
    assert not called
    assert not any(module._forward_pre_hooks for module in extractor.modules())


def test_looks_of_tokens_and_of_networks_without_normalization():
    tokens = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Flatten(), nn.Linear(21, 2))
    seen = looks(FeatureExtractor(tokens, FeaturePoint("input", "3")), torch.randn(4, 3, 5))
    assert seen.shape == (4, 2, 7), "seven channels, last in a token"
    plain = nn.Sequential(nn.Flatten(), nn.Linear(75, 2))
    assert looks(FeatureExtractor(plain, FeaturePoint("input", "1")), torch.rand(4, 3, 5, 5)).shape == (4, 2, 3)
    assert looks(FeatureExtractor(plain, FeaturePoint("input", "1")), torch.rand(4, 75)).shape == (4, 2, 75)


def test_looks_of_layers_that_see_several_rows_per_sample():
    class Points(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.fc = nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(self.norm(x.flatten(0, 1)).view_as(x).mean(dim=1))

    network = FeatureExtractor(Points().eval(), FeaturePoint("input", "fc"))
    x = torch.randn(4, 9, 3, generator=torch.Generator().manual_seed(0))
    seen = looks(network, x)
    deviation, mean = torch.std_mean(x, dim=1, correction=0)
    torch.testing.assert_close(seen, torch.stack((mean, deviation), dim=1))


@pytest.mark.parametrize("mean", [0.0, 300.0, 1000.0])
def test_mixing_keeps_small_variances_of_large_values(mean):
    statistics = torch.tensor([[mean], [0.01]])
    torch.testing.assert_close(mixed(statistics, statistics, 0.3), statistics)
    other = torch.tensor([[mean + 1], [0.03]])
    exact = mixed(statistics.double(), other.double(), 0.25)
    torch.testing.assert_close(exact[1], torch.tensor([0.75 * 0.01 + 0.25 * 0.03 + 0.25 * 0.75], dtype=torch.float64))
