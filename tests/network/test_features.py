import pytest
import torch
from torch import nn

from owttt import SourceStats, wrap
from owttt.network.features import locate_features


class Residual(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv = nn.Conv2d(size, size, 3, padding=1)
        self.bn = nn.BatchNorm2d(size)

    def forward(self, x):
        return torch.relu(x + self.bn(self.conv(x)))


class ResNet(nn.Module):
    """The head stands first in the file: order of registration must not matter."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
        self.stem = nn.Conv2d(1, 6, 3, padding=1)
        self.layer = nn.Sequential(Residual(6), Residual(6))
        self.avgpool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.fc(self.avgpool(self.layer(self.stem(x))).flatten(1))


class ViT(nn.Module):
    """Tokens, attention, a pooled head; the token width equals the number of classes, and so does the MLP's."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 3, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 3))
        self.block = nn.TransformerEncoderLayer(3, 1, 3, batch_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(3)
        self.head = nn.Linear(3, 3)

    def forward(self, x):
        tokens = self.patch(x).flatten(2).mT
        tokens = torch.cat((self.token.expand(len(x), -1, -1), tokens), dim=1)
        return self.head(self.norm(self.block(tokens))[:, 0])


class Answer:
    def __init__(self, logits):
        self.logits = logits


class Record(ResNet):
    """Answers with a record, as Hugging Face models do."""

    def forward(self, x):
        return Answer(super().forward(x))


class Convolutional(nn.Module):
    """No linear layer at all."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(1, 5, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Conv2d(5, 3, 1)

    def forward(self, x):
        return self.classify(self.pool(self.body(x).relu())).flatten(1)


def sequential():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 3))


X = torch.randn(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3


def fit(model, **options):
    return SourceStats.fit(model, [(X, Y)], 3, progress=False, **options)


class ByName(ResNet):
    """Calls its head with a keyword."""

    def forward(self, x):
        return self.fc(input=self.avgpool(self.layer(self.stem(x))).flatten(1))


@pytest.mark.parametrize(
    ("make", "point", "head", "size"),
    [
        (sequential, "input:4", ("4",), 7),
        (ResNet, "input:fc", ("fc",), 6),
        (ViT, "input:head", ("head",), 3),
        (Record, "input:fc", ("fc",), 6),
        (ByName, "input:fc", ("fc",), 6),
        (lambda: nn.Sequential(ResNet(), nn.LogSoftmax(dim=1)), "input:0.fc", ("0.fc", "1"), 6),
    ],
    ids=["sequential", "resnet", "vit", "record", "by name", "behind a softmax"],
)
def test_the_head_is_found_and_adapts(make, point, head, size):
    torch.manual_seed(0)
    model = make()
    source = fit(model)
    assert (source.info.feature_point, source.info.head) == (point, head)
    assert source.mean.shape == (size,)
    for method in ("owttt", "ttac", "shot"):
        adapter = wrap(model, method, preset="paper", source=source)
        before = {name: value.clone() for name, value in adapter.method.network.model.named_parameters()}
        adapter(X)
        changed = {n for n, v in adapter.method.network.model.named_parameters() if not torch.equal(v, before[n])}
        assert changed
        assert not any(name.startswith(point.removeprefix("input:") + ".") for name in changed), "the head is fixed"


def test_features_are_the_input_of_the_head():
    torch.manual_seed(0)
    model = ResNet().eval()
    out = locate_features(model, X[:2], 3)(X)
    torch.testing.assert_close(model.fc(out.features), out.logits)
    torch.testing.assert_close(out.logits, model(X))


def test_features_can_be_named():
    torch.manual_seed(0)
    model = ResNet().eval()
    found, named = fit(model), fit(model, features="avgpool")
    torch.testing.assert_close(found.class_means, named.class_means)
    assert (named.info.feature_point, named.info.head) == ("output:avgpool", ("fc",))
    torch.testing.assert_close(wrap(model, source=found)(X).scores, wrap(model, source=named)(X).scores)
    with pytest.raises(ValueError, match=r"fitted on features at 'output:avgpool', not at 'output:layer'"):
        wrap(model, source=named, features="layer")


@pytest.mark.parametrize("pair", [True, False])
def test_features_can_be_a_function(pair):
    torch.manual_seed(0)
    model = Convolutional().eval()

    def features(net, x):
        pooled = net.pool(net.body(x).relu())
        return (pooled.flatten(1), net.classify(pooled).flatten(1)) if pair else pooled.flatten(1)

    source = fit(model, features=features)
    assert source.info.feature_point == "callable"
    adapter = wrap(model, source=source, features=features, score="energy")
    torch.testing.assert_close(adapter.predict(X).scores, -model(X).logsumexp(dim=1))
    adapter(X)
    with pytest.raises(ValueError, match="pass the same one"):
        wrap(model, source=source)


def test_errors_name_the_way_out():
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"No final linear layer with 3 outputs.*Candidates: pool \(.*5 numbers\)"):
        fit(Convolutional())
    with pytest.raises(ValueError, match=r"no module 'avg'. Its modules: .*avgpool"):
        fit(ResNet(), features="avg")
    with pytest.raises(ValueError, match=r"one vector a sample, shape \(batch, D\), got shape \(batch, 6, 8, 8\)\."):
        fit(ResNet(), features="layer")
    unused = ResNet()
    unused.spare = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="did not call its module"):
        fit(unused, features="spare")
    with pytest.raises(ValueError, match="Candidates: none"):
        fit(nn.Sequential(nn.Conv2d(1, 3, 1)), features=None)


def test_no_hook_is_left_behind():
    model = ResNet()
    wrap(model, source=fit(model))(X)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
