import pytest
import torch
from torch import nn

from owttt import SourceStats, wrap
from owttt.source import quantiles
from owttt.source.moments import BatchSpread
from tests import reference
from tests.world import CLASSES, make_world


def fit(world, size, **options):
    loader = list(zip(world.x.split(size), world.y.split(size), strict=True))
    return SourceStats.fit(world.model, loader, CLASSES, progress=False, **options)


def buffers(source):
    return dict(source.named_buffers())


def test_statistics_equal_the_reference():
    world = make_world()
    literal = reference.TTTPlusPlus(world.model, world.x, world.y, CLASSES)
    source = world.source
    torch.testing.assert_close(source.prototypes, literal.prototypes)
    torch.testing.assert_close(source.class_means, literal.class_means)
    torch.testing.assert_close(source.class_covariances, literal.class_covs)
    torch.testing.assert_close(source.mean, literal.mean)
    torch.testing.assert_close(source.covariance, literal.cov)
    torch.testing.assert_close(source.mean_spread, literal.m)
    torch.testing.assert_close(source.covariance_spread, literal.c)
    assert source.spread_samples == literal.samples == 120


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_the_loader_s_batch_size_does_not_matter(size):
    world = make_world()
    for name, value in buffers(fit(world, size)).items():
        torch.testing.assert_close(value, buffers(world.source)[name], msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("number", [5, 6, 9, 13, 20])
def test_spread_between_batches(number):
    features = torch.randn(number, 3, dtype=torch.float64)
    spread = BatchSpread(3)
    for part in features.split(2):
        spread.add(part)
    found = spread.result()
    batches = list(features.split(3))[: number // 3] if number >= 6 else list(features.chunk(2))
    pairs = [(a, b) for i, a in enumerate(batches) for b in batches[i + 1 :]]
    mean = sum(((a.mean(0) - b.mean(0)) ** 2).mean() for a, b in pairs) / len(pairs)
    torch.testing.assert_close(found["mean_spread"], mean)
    cov = reference.Reference.cov_of
    squares = [((cov(a) - cov(b)) ** 2).sum() / (4 * 9) for a, b in pairs]
    torch.testing.assert_close(found["covariance_spread"], sum(squares) / len(squares))


def test_an_offset_does_not_drown_the_variances():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(4, 2)).double()
    x = torch.randn(100, 4, dtype=torch.float64) * 1e-3 + 1e6
    source = SourceStats.fit(model, list(zip(x.split(10), (torch.arange(100) % 2).split(10), strict=True)), 2)
    torch.testing.assert_close(source.covariance, torch.cov(x.T, correction=0), rtol=1e-6, atol=0)


def test_variances_instead_of_covariances():
    world = make_world()
    diagonal = fit(world, 50, class_covariance="diagonal")
    expected = world.source.class_covariances.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(diagonal.class_covariances, expected)
    assert diagonal.diagonal
    assert not world.source.diagonal
    with pytest.raises(ValueError, match="'auto', 'full' or 'diagonal', got 'none'"):
        fit(world, 50, class_covariance="none")


def test_save_and_load(tmp_path):
    world = make_world()
    path = tmp_path / "stats.safetensors"
    world.source.save(path)
    loaded = SourceStats.load(path)
    assert loaded.info == world.source.info
    assert loaded.fingerprint == world.source.fingerprint
    assert all(torch.equal(value, buffers(loaded)[name]) for name, value in buffers(world.source).items())
    wrap(world.model, source=loaded)(world.stream[0][0])
    assert [file.name for file in tmp_path.iterdir()] == ["stats.safetensors"]


def test_the_model_is_left_as_it_was():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, CLASSES))
    model.train()
    model[2].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    world = make_world(dtype=torch.float32)
    SourceStats.fit(model, [(world.x, world.y)], CLASSES, progress=False)
    assert [m.training for m in model] == [True, True, False, True, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_bad_source_data_is_told():
    world = make_world()
    x, y = world.x, world.y

    def attempt(*batches, classes=CLASSES):
        return SourceStats.fit(world.model, list(batches), classes, progress=False)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, 6)).double()
    with pytest.raises(ValueError, match=r"No source sample of 2 of 6 classes: \[4, 5\]"):
        SourceStats.fit(model, [(x, y)], 6)
    with pytest.raises(ValueError, match="The loader is empty"):
        attempt()
    with pytest.raises(ValueError, match=r"pairs \(x, y\) of tensors, or named tensors with labels; got Tensor"):
        attempt(x)
    with pytest.raises(ValueError, match=r"x \(240, 1, 8, 8\) and y \(239,\)"):
        attempt((x, y[1:]))
    with pytest.raises(ValueError, match=r"whole numbers 0 … 3, got \[1, 2, 3, 4\]"):
        attempt((x, y + 1))
    with pytest.raises(ValueError, match="NaN or Inf"):
        attempt((x.index_fill(0, torch.tensor([3]), torch.nan), y))
    dead = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, CLASSES)).double()
    nn.init.constant_(dead[1].bias, -1e6)
    with pytest.raises(ValueError, match=r"mean feature of classes \[0, 1, 2, 3\] is zero"):
        SourceStats.fit(dead, [(x, y)], CLASSES)
    with pytest.raises(ValueError, match="classifier is on cpu, x on meta, y on meta; pass device='cpu'"):
        attempt((x.to("meta"), y.to("meta")))
    huge = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, CLASSES)).double()
    nn.init.constant_(huge[1].bias, torch.inf)
    with pytest.raises(ValueError, match=r"x \(0, 1, 8, 8\) and y \(0,\)"):
        attempt((x[:0], y[:0]))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        attempt((x, y), classes=0)
    with pytest.raises(ValueError, match=r"in torch\.float64, the source data in torch\.float32"):
        attempt((x.float(), y))
    with pytest.raises(ValueError, match="num_classes is 5, the classifier has 4 outputs"):
        SourceStats.fit(world.model, [(x, y)], 5, features="out")
    with pytest.raises(ValueError, match="features that are not finite"):
        SourceStats.fit(huge, [(x, y)], CLASSES)


@pytest.mark.parametrize("form", ["full", "diagonal"])
def test_scores_of_the_source(form):
    """Quantiles of 1 - max cos, drawn from the classes' Gaussians, are near those of many more draws."""
    world = make_world()
    loader = list(zip(world.x.split(64), world.y.split(64), strict=True))
    source = SourceStats.fit(world.model, loader, 4, class_covariance=form, progress=False)
    del source._buffers["quantiles_cosine"]
    torch.manual_seed(1)
    drawn = []
    for mean, spread in zip(source.class_means, source.class_covariances, strict=True):
        covariance = spread if form == "full" else spread.diag()
        gaussian = torch.distributions.MultivariateNormal(mean, covariance + 1e-9 * torch.eye(len(mean)))
        for z in gaussian.sample((1000,)):
            drawn.append(min(1 - float(torch.cosine_similarity(z, p, dim=0)) for p in source.prototypes))
    for share in (0.1, 0.5, 0.9):
        expected = sorted(drawn)[int(share * len(drawn))]
        assert float(source.score_quantiles().quantile(share)) == pytest.approx(expected, rel=0.15, abs=1e-3)
    assert torch.equal(source.score_quantiles(), source.score_quantiles())


def test_quantiles_of_every_named_score_are_measured_and_kept(tmp_path):
    """They are those of the very samples, whatever the batches; statistics without them are still read."""
    world = make_world()
    labels = world.y.clone()
    labels[::9] = (labels[::9] + 1) % 4
    loader = list(zip(world.x.split(64), labels.split(64), strict=True))
    source = SourceStats.fit(world.model, loader, 4, progress=False)
    features, logits = world.model.embed(world.x).detach(), world.model(world.x).detach()
    means = torch.stack([features[labels == k].mean(dim=0) for k in range(4)])
    nearest = [max(range(4), key=lambda k: float(torch.cosine_similarity(z, means[k], dim=0))) for z in features]
    right = [ours == y for ours, y in zip(nearest, labels.tolist(), strict=True)]
    assert 0 < sum(right) < len(right), "some must be wrong, or the test shows nothing"
    expected = {
        "cosine": [min(1 - float(torch.cosine_similarity(z, m, dim=0)) for m in means) for z in features],
        "centered": [
            min(
                1 - float(torch.cosine_similarity(z - features.mean(dim=0), m - features.mean(dim=0), dim=0))
                for m in means
            )
            for z in features
        ],
        "energy": [-float(row.logsumexp(dim=0)) for row in logits],
        "max-softmax": [1 - float(row.softmax(dim=0).max()) for row in logits],
    }
    source.save(tmp_path / "s")
    for name, scores in expected.items():
        literal = torch.tensor(scores, dtype=torch.float64).quantile(torch.linspace(0, 1, 201, dtype=torch.float64))
        torch.testing.assert_close(source.score_quantiles(name), literal, rtol=1e-6, atol=1e-9)
        assert torch.equal(SourceStats.load(tmp_path / "s").score_quantiles(name), source.score_quantiles(name))
        kept = [score for score, fine in zip(scores, right, strict=True) if fine]
        literal = torch.tensor(kept, dtype=torch.float64).quantile(torch.linspace(0, 1, 201, dtype=torch.float64))
        torch.testing.assert_close(source.score_quantiles(name, right=True), literal, rtol=1e-6, atol=1e-9)
    before = source.fingerprint
    del source._buffers["quantiles_right_cosine"]
    assert torch.equal(source.score_quantiles(right=True), source.score_quantiles()), "older statistics give all"
    for name in [name for name in source._buffers if name.startswith("quantiles_")]:
        del source._buffers[name]
    assert source.fingerprint == before, "statistics from before there were any have their fingerprint still"
    assert source.score_quantiles("energy") is None
    assert source.score_quantiles("my_package:score") is None


def test_a_large_source_is_thinned_out_evenly(monkeypatch):
    monkeypatch.setattr(quantiles, "CAPACITY", 20)
    sample = quantiles.ScoreSample()
    for part in torch.arange(1000.0).split(7):
        sample.add(part[:, None], part[:, None], part.long())
    kept = torch.cat([features for features, *_ in sample._kept])[:, 0]
    assert 20 <= len(kept) <= 40
    assert kept.diff().unique().tolist() == [32]


def test_few_samples_are_warned_of():
    world = make_world()
    with pytest.warns(UserWarning, match="Source statistics of 9 samples are rough"):
        SourceStats.fit(world.model, [(world.x[:9], torch.arange(9) % CLASSES)], CLASSES, progress=False)


@pytest.mark.parametrize("number", [0, 49, 50])
def test_where_few_are_classified_right_the_quantiles_are_of_all_samples(number):
    sample = quantiles.ScoreSample()
    features = torch.eye(2).repeat(100, 1) + 0.1 * torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([1, 0]).repeat(100)
    labels[:number] = 1 - labels[:number]
    sample.add(features, features, labels)
    found = sample.result(torch.eye(2), torch.tensor([0.5, 0.5]))
    assert torch.equal(found["quantiles_right_cosine"], found["quantiles_cosine"]) == (number < 50)


def test_what_held_out_samples_score_is_kept_in_place_of_what_training_samples_score(tmp_path):
    world = make_world()
    pairs = list(zip(world.x.split(64), world.y.split(64), strict=True))
    plain = SourceStats.fit(world.model, pairs, 4, progress=False)
    new = world.x[:100] + 0.3
    both = [(new[:60], world.y[:60]), (new[60:], world.y[60:100])]
    with pytest.warns(UserWarning, match="100 held-out samples are too few"):
        held_out = SourceStats.fit(world.model, pairs, 4, held_out=both, progress=False)
    again = SourceStats.fit(world.model, [(new, world.y[:100])], 4, progress=False)
    assert held_out.info.held_out == 100
    assert plain.info.held_out == 0
    assert torch.equal(held_out.class_means, plain.class_means)
    for right in (True, False):
        trained_on = plain.score_quantiles("energy", right=right)
        fresh = again.score_quantiles("energy", right=right)
        assert torch.equal(held_out.score_quantiles("energy", right=right), trained_on)
        torch.testing.assert_close(held_out.score_quantiles("energy", right=right, held_out=True), fresh)
    assert wrap(world.model, source=held_out).method.middle == wrap(world.model, source=plain).method.middle
    held_out.save(tmp_path / "s")
    assert SourceStats.load(tmp_path / "s").info == held_out.info
    assert "held_out=100" in wrap(world.model, source=held_out).config["threshold"]


@pytest.mark.parametrize(
    ("held_out", "message"),
    [
        (lambda x, _: [], "no held-out samples"),
        (lambda x, y: [(x[:, :, :4], y)], r"must be like those of the loader.*\(1, 8, 8\).*got.*\(1, 4, 8\)"),
        (lambda x, y: [(x, y + 4)], "In held_out: Source labels must be whole numbers"),
    ],
)
def test_held_out_samples_that_are_none(held_out, message):
    world = make_world()
    with pytest.raises(ValueError, match=message):
        SourceStats.fit(world.model, [(world.x, world.y)], 4, held_out=held_out(world.x, world.y), progress=False)


def test_few_held_out_samples_are_warned_of():
    world = make_world()
    with pytest.warns(UserWarning, match="20 held-out samples are too few"):
        SourceStats.fit(world.model, [(world.x, world.y)], 4, held_out=[(world.x[:20], world.y[:20])], progress=False)


def test_held_out_labels_in_another_order_are_warned_of():
    world = make_world()
    with pytest.warns(UserWarning, match="0 % of the held-out samples are classified right, and 100 %"):
        SourceStats.fit(world.model, [(world.x, world.y)], 4, held_out=[(world.x, (world.y + 1) % 4)], progress=False)
