"""How samples look to the layers on the way."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from owttt import SourceStats, wrap
from owttt.detector import SCORES
from owttt.functional import depth_score
from owttt.network.depth import watching
from owttt.network.features import FeatureExtractor, FeaturePoint
from tests.world import CLASSES, make_world

WORLD = make_world()
X, Y = (torch.cat(parts) for parts in zip(*WORLD.stream, strict=True))


def extractor(model):
    frozen = copy.deepcopy(model).requires_grad_(False)
    return FeatureExtractor(frozen, FeaturePoint("input", "fc"), head=("fc",))


@torch.no_grad()
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


def test_a_layer_that_is_given_no_whole_number_of_rows_per_sample_says_nothing():
    layer = nn.BatchNorm1d(2).eval()
    with watching(nn.Sequential(layer), 5) as seen:
        layer(torch.randn(12, 2))
    assert seen.result() is None


def test_layers_that_are_not_called_are_not_missed():
    """A head that only training uses."""
    network = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(3)).eval()
    with watching(network, 12) as seen:
        network[0](torch.randn(12, 2))
    assert seen.result().shape == (12, 2)


def test_channels_of_tokens_are_last():
    layer = nn.LayerNorm(3).eval()
    tokens = torch.randn(5, 7, 3)
    with watching(nn.Sequential(layer), 5) as seen:
        layer(tokens)
    torch.testing.assert_close(seen.result(), layer(tokens).mean(dim=1))


def test_tokens_that_come_before_samples_say_nothing():
    """A transformer whose layers are given (tokens, samples, channels)."""
    layer = nn.LayerNorm(3).eval()
    with watching(nn.Sequential(layer), 4) as seen:
        layer(torch.randn(8, 4, 3))
    assert seen.result() is None


def test_where_there_is_batch_norm_other_layers_are_not_looked_at():
    network = nn.Sequential(nn.LayerNorm(3), nn.BatchNorm1d(3)).eval()
    x = torch.randn(5, 3)
    with watching(network, 5) as seen:
        network(x)
    torch.testing.assert_close(seen.result(), network(x))


def test_without_normalization_there_is_nothing_to_see():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, CLASSES)).double()
    source = SourceStats.fit(model, [(WORLD.x, WORLD.y)], CLASSES, progress=False)
    assert source.depth_mean is None
    joint, cosine = (wrap(model, source=source, score=score) for score in ("joint", "cosine"))
    for x, _ in WORLD.stream:
        assert torch.equal(joint(x).scores, cosine(x).scores)


def test_without_batch_norm_looks_are_moved_back_to_the_source():
    """What a look on the way is less the mean of all, plus that of the source."""
    world = make_world(norm=False)
    method = wrap(world.model, source=world.source).method
    x = world.stream[0][0]
    with torch.no_grad():
        hidden = world.model.hidden(torch.nn.functional.avg_pool2d(world.model.conv(x).relu(), 2).flatten(1))
        tokens, features = world.model.last(hidden), world.model.embed(x)
    statistics, out = method.normalization.measure(x)
    for found in (out, method.normalization.run(x, statistics)):
        torch.testing.assert_close(found.depth, tokens - tokens.mean(dim=0) + world.source.depth_mean)
        torch.testing.assert_close(found.features, features - features.mean(dim=0) + world.source.mean)
    as_they_are = method.normalization.run(x, method.normalization.source)
    torch.testing.assert_close(as_they_are.depth, tokens)


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
    known = Y[:200] < CLASSES
    out = wrap(WORLD.model, source=WORLD.source)(X[:200])
    assert float(out.known[known].float().mean()) > 0.7
    assert float(out.known[~known].float().mean()) < 0.1


def test_the_score_goes_with_the_method():
    """The joint score needs statistics of the known samples, which one method finds; presets keep to the paper."""
    chosen = {
        "joint": wrap(WORLD.model, source=WORLD.source),
        "cosine": wrap(WORLD.model, "owttt", source=WORLD.source, preset="paper"),
        "centered": wrap(WORLD.model, source=WORLD.source, score="centered"),
    }
    assert {name: adapter.config["score"].split(",")[0] for name, adapter in chosen.items()} == {
        name: name for name in chosen
    }
    assert wrap(WORLD.model, "test", source=WORLD.source).config["score"] == "cosine"
    assert chosen["joint"].method.network.watches
    assert not chosen["cosine"].method.network.watches


def without(source, *parts):
    """Return statistics that lack all tensors with one of these parts in their names."""
    tensors = {name: value for name, value in source._tensors().items() if not any(part in name for part in parts)}
    return SourceStats(source.info, tensors)


HELD_OUT = SourceStats.fit(
    WORLD.model, [(WORLD.x, WORLD.y)], CLASSES, held_out=6 * [(X[Y < CLASSES], Y[Y < CLASSES])], progress=False
)


@pytest.mark.parametrize("source", [WORLD.source, HELD_OUT], ids=["trained on", "held out"])
@pytest.mark.parametrize("kept", ["scores by features", "nothing"])
def test_statistics_from_before_looks_were_kept_give_the_cosine(source, kept):
    """Thresholds included: those of the cosine, of the same samples."""
    older = without(source, "depth", *(("joint", "residual") if kept == "scores by features" else ("quantiles",)))
    joint, cosine = (wrap(WORLD.model, source=older, score=score) for score in ("joint", "cosine"))
    assert not joint.method.network.watches
    assert joint.config["threshold"] == cosine.config["threshold"]
    assert ("held_out" in joint.config["threshold"]) == (source is HELD_OUT and kept == "scores by features")
    for x, _ in WORLD.stream[:3]:
        one, other = joint(x), cosine(x)
        assert torch.equal(one.scores, other.scores)
        assert torch.equal(one.threshold, other.threshold)
    assert older.fingerprint == source.fingerprint


def test_without_batch_norm_the_joint_score_has_no_residual():
    with_it, without_it = make_world(), make_world(norm=False)
    assert set(with_it.source.joint_units) == {"cosine", "residual", "depth"}
    assert set(without_it.source.joint_units) == {"cosine", "depth"}
    scores = wrap(without_it.model, source=without_it.source).predict(without_it.stream[0][0]).scores
    assert scores.isfinite().all()
    assert float(scores.max()) <= 2 * 2


def test_held_out_samples_have_joint_scores_of_their_own():
    adapter = wrap(WORLD.model, source=HELD_OUT)
    assert "held_out=" in adapter.config["threshold"]
    assert not torch.equal(HELD_OUT.score_quantiles("joint", held_out=True), HELD_OUT.score_quantiles("joint"))
    some = without(HELD_OUT, "held_out_joint", "held_out_right_joint")
    assert "held_out" not in wrap(WORLD.model, source=some).config["threshold"], "then the others' scores count"


def test_a_pass_that_does_not_tell_looks_is_an_error():
    """Scores of one kind must not be held against a threshold of the other."""
    score = SCORES["joint"]
    out = extractor(WORLD.model)(X[:4])
    with pytest.raises(ValueError, match="20 channels as in the source statistics, got none"):
        score(out, WORLD.source)
    with pytest.raises(ValueError, match="got 3"):
        score(replace(out, depth=torch.zeros(4, 3)), WORLD.source)


def test_a_state_belongs_to_the_looks_it_was_made_with(tmp_path):
    first = wrap(WORLD.model, source=WORLD.source, threshold="adaptive")
    first(X[:64])
    first.save(tmp_path / "state")
    tensors = WORLD.source._tensors()
    others = SourceStats(WORLD.source.info, tensors | {"depth_mean": tensors["depth_mean"] + 1})
    for source in (without(WORLD.source, "depth"), others):
        with pytest.raises(ValueError, match="score: file 'joint, version 2, looks"):
            wrap(WORLD.model, source=source, threshold="adaptive").restore(tmp_path / "state")


def test_a_channel_that_never_changes_does_not_drown_the_others_in_rounding():
    deviation = torch.tensor([1.0, 1.0, 0.0])
    mean = torch.tensor([0.0, 0.0, 0.37])
    rounded = mean.bfloat16().float()[None]
    assert float(depth_score(rounded, mean, deviation)) < 0.01


def test_looks_that_are_no_numbers_are_infinitely_unlike_the_source():
    means = torch.tensor([[torch.nan, 0.0], [torch.inf, 0.0], [0.0, 1.0]])
    found = depth_score(means, torch.zeros(2), torch.ones(2))
    assert found.tolist() == [torch.inf, torch.inf, 0.5]


def test_predicting_in_inference_mode_does_not_keep_a_method_from_learning():
    world = make_world()
    adapter = wrap(world.model, "owttt", source=world.source, score="joint", keep_rate=1.0)
    with torch.inference_mode():
        adapter.predict(X[:64])
    assert adapter(X[:64]).scores.isfinite().all()
