"""How samples look to the layers on the way."""

import pytest
import torch
from torch import nn

from owttt import SourceStats, wrap
from owttt.network.depth import watching
from owttt.network.features import FeatureExtractor, FeaturePoint
from tests.world import CLASSES, make_world

WORLD = make_world()
X = torch.cat([x for x, _ in WORLD.stream])


def extractor(model):
    return FeatureExtractor(model, FeaturePoint("input", "fc"), head=("fc",)).requires_grad_(False)


def literal(model, x):
    """Means of the channels of both layers (three quarters of two are two), sample by sample."""
    rows = []
    for image in x:
        first = model.norm(model.conv(image[None]))
        hidden = torch.nn.functional.avg_pool2d(first.relu(), 2).flatten(1)
        last = model.last(model.hidden(hidden))
        rows.append([float(channel.mean()) for channel in first[0]] + last[0].tolist())
    return torch.tensor(rows, dtype=x.dtype)


def test_means_are_those_of_every_channel():
    network = extractor(WORLD.model)
    plain = network(X[:9])
    assert plain.depth is None, "only where a score asks for it"
    network.watches = True
    out = network(X[:9])
    torch.testing.assert_close(out.depth, literal(WORLD.model, X[:9]))
    assert torch.equal(out.features, plain.features)
    assert not any(module._forward_hooks for module in WORLD.model.modules())


def test_the_last_quarter_of_the_layers_is_left_out():
    layers = [nn.BatchNorm1d(3) for _ in range(8)]
    network = nn.Sequential(*layers).eval()
    with watching(network, 5) as seen:
        network(torch.randn(5, 3))
    assert seen.result().shape == (5, 18)


def test_several_rows_per_sample_are_one_look():
    layer = nn.BatchNorm1d(2).eval()
    rows = torch.randn(12, 2)
    with watching(nn.Sequential(layer), 4) as seen:
        layer(rows)
    torch.testing.assert_close(seen.result(), layer(rows).view(4, 3, 2).mean(dim=1))


@pytest.mark.parametrize("samples", [5, 12])
def test_layers_that_say_nothing_leave_nothing_to_go_by(samples):
    """One of them is given no whole number of rows per sample, or is not called at all."""
    network = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2)).eval()
    with watching(network, samples) as seen:
        network[0](torch.randn(12, 2))
    assert seen.result() is None


def test_without_batch_norm_there_is_nothing_to_see():
    world = make_world(norm=False)
    assert world.source.depth_mean is None
    joint, cosine = (wrap(world.model, source=world.source, score=score) for score in ("joint", "cosine"))
    for x, _ in world.stream:
        assert torch.equal(joint(x).scores, cosine(x).scores)


def joint_by_hand(model, source, x, z):
    """The joint score of samples with features z, from what the source's own samples are like."""
    means = [WORLD.model.embed(WORLD.x)[WORLD.y == k].mean(dim=0) for k in range(CLASSES)]
    own = WORLD.model.embed(WORLD.x)
    middle = own.mean(dim=0)
    directions = torch.linalg.svd(torch.stack(means) - middle, full_matrices=False).Vh[: CLASSES - 1]
    looks = literal(WORLD.model, WORLD.x)

    def terms(features, looks_of):
        cosine = [min(1 - float(torch.cosine_similarity(f, m, dim=0)) for m in means) for f in features]
        left = [1 - float(((f - middle) @ directions.T).square().sum() / (f - middle).square().sum()) for f in features]
        depth = [float((((row - looks.mean(dim=0)) / looks.std(dim=0)) ** 2).mean()) for row in looks_of]
        return [torch.tensor(values, dtype=torch.float64) for values in (cosine, left, depth)]

    total = torch.zeros(len(z), dtype=torch.float64)
    for ours, theirs in zip(terms(z, literal(model, x)), terms(own, looks), strict=True):
        low, high = float(theirs.quantile(0.5)), float(theirs.quantile(0.9))
        total += ((ours - low) / max(high - low, 0.04)).clamp(max=2)
    return total


@torch.no_grad()
def test_the_joint_score_of_a_stream():
    adapter = wrap(WORLD.model, "test", source=WORLD.source, score="joint")
    for x, _ in WORLD.stream[:3]:
        by_hand = joint_by_hand(WORLD.model, WORLD.source, x, WORLD.model.embed(x))
        torch.testing.assert_close(adapter(x).scores, by_hand, rtol=1e-3, atol=1e-3)


def test_a_network_that_knows_its_training_samples_by_heart_is_not_held_to_their_scores():
    """Its training samples score 0.004 apart; in such units all new samples would be far off, and rejected."""
    assert float(WORLD.source.score_quantiles("cosine").diff().sum()) < 0.04
    labels = torch.cat([y for _, y in WORLD.stream])[:200]
    out = wrap(WORLD.model, source=WORLD.source)(X[:200])
    assert float(out.known[labels < CLASSES].float().mean()) > 0.7
    assert float(out.known[labels >= CLASSES].float().mean()) < 0.1


def test_the_score_goes_with_the_method():
    """The joint score needs statistics of the known samples, which one method finds; presets keep to the paper."""
    chosen = {
        "joint": wrap(WORLD.model, source=WORLD.source),
        "cosine": wrap(WORLD.model, source=WORLD.source, preset="paper"),
        "centered": wrap(WORLD.model, source=WORLD.source, score="centered"),
    }
    assert {name: adapter.config["score"] for name, adapter in chosen.items()} == {name: name for name in chosen}
    assert wrap(WORLD.model, "test", source=WORLD.source).config["score"] == "cosine"
    assert chosen["joint"].method.network.watches
    assert not chosen["cosine"].method.network.watches


def test_statistics_from_before_looks_were_kept_give_the_cosine(tmp_path):
    WORLD.source.save(tmp_path / "statistics")
    older = SourceStats.load(tmp_path / "statistics")
    for name in [name for name in older._buffers if name.startswith(("quantiles_", "depth_"))]:
        older._buffers[name] = None if name.startswith("depth_") else older._buffers.pop(name)
        if name.startswith("quantiles_"):
            del older._buffers[name]
    joint, cosine = (wrap(WORLD.model, source=older, score=score) for score in ("joint", "cosine"))
    assert not joint.method.network.watches
    for x, _ in WORLD.stream[:3]:
        assert torch.equal(joint(x).scores, cosine(x).scores)
    assert older.fingerprint == WORLD.source.fingerprint
