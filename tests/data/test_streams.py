"""Streams: the plan is what the spec says, the same every time, and any batch stands on its own."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from owttt import UNKNOWN
from owttt.data import Frame, Stream, StreamSpec
from owttt.data.corruptions.clouds import CLOUD_CORRUPTIONS, corrupt_clouds
from owttt.data.corruptions.images import COMMON, corrupt
from owttt.data.dataset import ArrayImages
from owttt.data.generated.noise import Noise
from owttt.data.streams.plan import BURST_SHARE, plan
from tests import official

SPEC = StreamSpec(known="k", unknown=("u",), batch_size=16)


def images(count, classes=4, size=8, seed=0):
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 256, (count, 3, size, size), dtype=np.uint8)
    return ArrayImages(pixels, np.arange(count) % classes, [f"{seed}-{n}" for n in range(classes)])


def stream(known=60, unknown=(60,), spec=SPEC, **changes):
    names = tuple(f"u{n}" for n in range(len(unknown)))
    spec = replace(spec, unknown=names, **changes)
    parts = [images(count, seed=n + 1) for n, count in enumerate(unknown)]
    return Stream(spec, known=images(known), unknown=parts)


def test_every_sample_comes_once():
    made = stream()
    assert len(made) == 8
    batches = list(made)
    assert [len(batch.y) for batch in batches] == [16] * 7 + [8]
    y = torch.cat([batch.y for batch in batches])
    assert (y == UNKNOWN).sum() == 60
    assert torch.bincount(y[y >= 0]).tolist() == [15] * 4
    x = torch.cat([batch.x for batch in batches])
    assert x.dtype == torch.float32
    known = made.known[0].batch(range(60)).float() / 255
    assert sorted(x[y >= 0].sum(dim=(1, 2, 3)).tolist()) == pytest.approx(sorted(known.sum(dim=(1, 2, 3)).tolist()))
    for row in (y >= 0).nonzero().flatten()[:10]:
        index = int(made.plan.index[row])
        assert (x[row] == known[index]).all()
        assert y[row] == made.known[0].labels[index]


def test_the_same_seed_is_the_same_stream_and_another_is_another():
    first, again, other = stream(), stream(), stream(seed=1)
    for one, two in zip(first, again, strict=True):
        assert (one.x == two.x).all()
        assert (one.y == two.y).all()
    assert any((one.y != two.y).any() for one, two in zip(first, other, strict=True))


def test_samples_at_any_places():
    made = stream(corruptions=("gaussian_noise", "fog"))
    x, y = (torch.cat(parts) for parts in zip(*made, strict=True))
    places = np.array([70, 3, 119, 4])
    some = made.at(places)
    assert (some.x == x[places]).all()
    assert (some.y == y[places]).all()


def test_it_resumes_from_any_batch():
    whole = list(stream(corruptions=("gaussian_noise", "fog")))
    for start in (0, 3, 8):
        rest = list(stream(corruptions=("gaussian_noise", "fog")).batches(start))
        assert len(rest) == 8 - start
        assert all((one.x == two.x).all() for one, two in zip(rest, whole[start:], strict=True))
    with pytest.raises(ValueError, match=r"batches 0 … 7, got 9"):
        stream().batches(9)
    for wrong in (8, -1):
        with pytest.raises(ValueError, match="batches 0 … 7"):
            stream().batch(wrong)


@pytest.mark.parametrize(("ratio", "expected"), [(0, 0), (0.2, 12), (0.5, 30), (1.0, 60)])
def test_ratio(ratio, expected):
    y = torch.cat([batch.y for batch in stream(ratio=ratio)])
    assert (y == UNKNOWN).sum() == expected
    assert (y >= 0).sum() == 60


def test_number_takes_some_of_the_known():
    made = stream(num_samples=10)
    assert (made.plan.part == 0).sum() == 10
    assert len(set(made.plan.index[made.plan.part == 0])) == 10
    with pytest.raises(ValueError, match="needs 61 samples of known, which has 60"):
        stream(num_samples=61)


def test_a_small_unknown_set_is_refused_or_repeated():
    with pytest.raises(
        ValueError, match="needs 60 samples of u0, which has 25; lower num_samples or ratio, or set repeat"
    ):
        stream(unknown=(25,))
    made = stream(unknown=(25,), repeat=True)
    counts = np.bincount(made.plan.index[made.plan.part == 1])
    assert sorted(set(counts.tolist())) == [2, 3]


def test_several_unknown_sets_come_in_equal_shares():
    made = stream(unknown=(60, 60, 60))
    assert np.bincount(made.plan.part).tolist() == [60, 20, 20, 20]


def test_corruptions_depend_on_the_image_only():
    made = stream(corruptions=("snow",), unknown=(), ratio=0)
    shuffled = stream(corruptions=("snow",), unknown=(), ratio=0, seed=5, batch_size=7)
    all_of_it = corrupt(made.known[0].batch(range(60)), "snow", 5, indices=range(60)).float() / 255
    for one in (made, shuffled):
        x = torch.cat([batch.x for batch in one])
        assert (x == all_of_it[torch.from_numpy(one.plan.index)]).all()


def test_frost_from_photographs(tmp_path):
    official.save_jpeg(tmp_path / "ice" / "a.jpg", size=(400, 400))
    made = stream(corruptions=("frost",), unknown=(), ratio=0, frost=str(tmp_path / "ice"))
    synthetic = stream(corruptions=("frost",), unknown=(), ratio=0)
    assert (made.batch(0).x != synthetic.batch(0).x).any()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        stream(corruptions=("frost",), frost=str(tmp_path / "nowhere"))


def test_mixed_changing_and_recurring_corruptions():
    three = ("snow", "contrast", "glass_blur")
    mixed = stream(corruptions=three).plan
    assert np.bincount(mixed.corruption[mixed.part == 0]).tolist() == [20, 20, 20]
    assert (mixed.corruption[mixed.part == 1] == -1).all()
    changing = stream(corruptions=three, phases="changing").plan
    seen = changing.corruption[changing.part == 0]
    assert (np.diff(seen) >= 0).all()
    assert set(seen) == {0, 1, 2}
    recurring = stream(corruptions=three, phases="recurring", cycles=2).plan
    seen = recurring.corruption[recurring.part == 0]
    runs = [int(seen[0]), *(int(b) for a, b in itertools.pairwise(seen) if a != b)]
    assert runs == [0, 1, 2, 0, 1, 2]


def test_all_stands_for_the_common_ones():
    assert len(StreamSpec(corruptions=("all",)).corruptions) == 15
    assert StreamSpec.parse('{"corruptions": ["all"]}').corruptions == COMMON
    assert StreamSpec(known="modelnet40-c", corruptions=("all",)).corruptions == CLOUD_CORRUPTIONS
    with pytest.raises(ValueError, match="described by names and values, got list"):
        StreamSpec.parse("[1]")


def shares(spec, parts=10):
    where = plan(spec, [4000, 4000], np.arange(4000) % 10).part > 0
    return [float(part.mean()) for part in np.array_split(where, parts)]


def test_the_share_of_unknowns_over_time():
    constant = shares(SPEC)
    assert max(constant) - min(constant) < 0.1
    rising = shares(replace(SPEC, share="rising"))
    assert rising[0] < 0.15
    assert rising[-1] > 0.7
    assert all(b > a - 0.03 for a, b in itertools.pairwise(rising))
    falling = shares(replace(SPEC, share="falling"))
    assert falling[0] > 0.7
    assert falling[-1] < 0.15
    bursts = shares(replace(SPEC, share="bursts", bursts=5, ratio=0.25), parts=100)
    inside = [share for share in bursts if share > 0.5]
    assert sum(share == 0 for share in bursts) >= 70
    assert np.mean(inside) == pytest.approx(BURST_SHARE, abs=0.05)
    edges = sum(a == 0 and b > 0 for a, b in zip([0, *bursts], bursts, strict=False))
    assert edges == 5


def test_dirichlet_order_brings_few_classes_at_a_time():
    labels = np.arange(2000) % 10

    def classes_a_batch(concentration):
        made = plan(replace(SPEC, ratio=0, batch_size=50, dirichlet=concentration), [2000, 1], labels)
        assert sorted(made.index) == list(range(2000))
        return np.mean([len(set(labels[part])) for part in np.split(made.index, 40)])

    assert classes_a_batch(None) > 9.5
    assert classes_a_batch(0.1) < 6
    assert classes_a_batch(0.01) < classes_a_batch(0.1) < classes_a_batch(10.0)


def test_a_spec_is_a_small_json():
    spec = replace(SPEC, corruptions=("snow", "fog"), dirichlet=0.5, share="bursts", num_samples=7)
    text = json.dumps(spec.describe())
    assert StreamSpec.parse(text) == spec
    assert StreamSpec.parse(json.loads(text)) == spec
    assert len(text) < 400
    with pytest.raises(ValueError, match=r"A stream has no 'corruption'\. Did you mean corruptions"):
        StreamSpec.parse({"corruption": "snow"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corruptions": ("snaw",)}, "No corruption 'snaw'. Did you mean snow"),
        ({"unknown": ("mnist@fogg",)}, "No corruption 'fogg'. Did you mean fog"),
        ({"corruptions": "snow"}, "corruptions must be a list of names, got the word 'snow'"),
        ({"severity": 6}, "severity must be 1 to 5, got 6"),
        ({"severity": 5.0}, "severity must be a whole number, at least 1, got 5.0"),
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
        ({"batch_size": "8"}, "batch_size must be a whole number, at least 1, got '8'"),
        ({"seed": -1}, "seed must be a whole number, at least 0"),
        ({"num_samples": 0}, "num_samples must be a whole number, at least 1"),
        ({"ratio": -0.1}, "ratio must be a number, 0 or more"),
        ({"ratio": float("nan")}, "ratio must be a number, 0 or more"),
        ({"dirichlet": 0.0}, "dirichlet must be a positive number"),
        ({"dirichlet": float("inf")}, "dirichlet must be a positive number"),
        ({"known": "modelnet40-c", "corruptions": ("snow",)}, "No corruption 'snow'"),
        ({"share": "sometimes"}, "share must be one of"),
        ({"phases": "never"}, "phases must be one of"),
    ],
)
def test_bad_specs_say_what_was_expected(changes, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        replace(SPEC, **changes)


def test_sets_by_name_with_a_frame_and_noise(tmp_path):
    official.cifar(tmp_path / "cifar-10-batches-bin", ["test_batch.bin"])
    official.mnist(tmp_path / "mnist")
    spec = StreamSpec(corruptions=("snow",), unknown=("mnist", "noise", "mnist@fog"), batch_size=5)
    made = Stream(spec, frame=Frame(32), root=tmp_path)
    batches = list(made)
    assert sum(len(batch.y) for batch in batches) == 14
    assert all(batch.x.shape[1:] == (3, 32, 32) for batch in batches)
    with pytest.raises(ValueError, match=r"mnist@fog: fog cannot be done to .*A frame makes gray images RGB"):
        Stream(replace(spec, corruptions=()), root=tmp_path)
    with pytest.raises(ValueError, match=r"different shapes cannot be in one stream: .*Give a frame"):
        Stream(replace(spec, corruptions=(), unknown=("mnist",)), root=tmp_path)
    with pytest.raises(ValueError, match=r"noise@fog: fog cannot be done to torch\.float32"):
        Stream(replace(spec, unknown=("noise@fog",)), frame=Frame(32), root=tmp_path)


def test_the_published_corrupted_sets_are_read_not_made(tmp_path):
    pixels, labels = official.cifar_c(tmp_path / "CIFAR-10-C")
    spec = StreamSpec(known="cifar10-c", corruptions=("snow",), severity=3, unknown=("uniform-noise",), batch_size=3)
    made = Stream(spec, frame=Frame(32), root=tmp_path)
    for number, batch in enumerate(made):
        for place, y in enumerate(batch.y.tolist()):
            row = 3 * number + place
            if y != UNKNOWN:
                index = int(made.plan.index[row])
                assert y == labels[8 + index]
                assert (batch.x[place] * 255 - torch.from_numpy(pixels[8 + index]).permute(2, 0, 1)).abs().max() < 1e-3
    with pytest.raises(ValueError, match="cifar10-c is corrupted: name at least one corruption"):
        Stream(replace(spec, corruptions=()), root=tmp_path)


def test_what_cannot_work_is_said_at_once(tmp_path):
    with pytest.raises(ValueError, match="names 1 unknown sets, 2 were given"):
        Stream(replace(SPEC, unknown=("u",)), known=images(9), unknown=[images(9, seed=1), images(9, seed=2)])
    with pytest.raises(ValueError, match="u: no samples are left of it"):
        Stream(replace(SPEC, unknown=("u",)), known=images(9), unknown=[images(9)])
    official.cifar_c(tmp_path / "CIFAR-10-C")
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", np.load(tmp_path / "CIFAR-10-C" / "snow.npy"))
    spec = StreamSpec(known="cifar10-c", corruptions=("snow", "fog"), batch_size=3)
    assert len(Stream(spec, root=tmp_path)) == 2
    given = Stream(replace(spec, corruptions=("snow",)), known=images(9, size=32), root=tmp_path)
    clean = Stream(replace(spec, corruptions=()), known=images(9, size=32), root=tmp_path)
    assert (given.batch(0).x != clean.batch(0).x).any(), "a set that is given is corrupted here"


def test_published_corruptions_with_different_images(tmp_path):
    for corruption, count in (("snow", 3), ("contrast", 2)):
        for image in range(count):
            official.save_jpeg(tmp_path / "ImageNet-C" / corruption / "5" / "n01440764" / f"{image}.JPEG")
    spec = StreamSpec(known="imagenet-c", corruptions=("snow", "contrast"))
    with pytest.raises(ValueError, match="imagenet-c: contrast has other images than snow"):
        Stream(spec, frame=Frame(32), root=tmp_path)


def test_a_corrupted_image_looks_the_same_whatever_else_is_left_out():
    whole = Stream(replace(SPEC, unknown=(), corruptions=("snow",)), known=images(12))
    some = Stream(replace(SPEC, unknown=(), corruptions=("snow",)), known=images(12), classes=("0-1", "0-3"))
    for row, index in enumerate(some.plan.index):
        number = int(some.known[0].numbers([int(index)])[0])
        place = int(np.flatnonzero(whole.plan.index == number)[0])
        assert (some.batch(0).x[row] == whole.batch(0).x[place]).all()


def test_classes_are_the_models():
    known = images(12)
    names = ("0-3", "0-1")
    spec = replace(SPEC, unknown=("u",), num_samples=6)
    made = Stream(spec, known=known, unknown=[Noise(20, uniform=True)], classes=names, frame=Frame(8))
    y = torch.cat([batch.y for batch in made])
    assert sorted(y.tolist()) == [UNKNOWN] * 6 + [0] * 3 + [1] * 3


def test_clouds_are_corrupted_before_they_are_thinned_out(tmp_path):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "shapes.npz", x=random.normal(size=(6, 200, 3)).astype(np.float32), y=np.arange(6) % 2)
    official.mnist(tmp_path / "mnist")
    spec = StreamSpec(
        known="npz:shapes.npz", corruptions=("cutout",), unknown=("noise", "mnist-clouds@shear"), batch_size=4
    )
    made = Stream(spec, frame=Frame(points=50), root=tmp_path)
    x, y = (torch.cat(parts) for parts in zip(*made, strict=True))
    assert x.shape[1:] == (50, 3)
    assert x.dtype == torch.float32
    assert sorted(y[y >= 0].tolist()) == [0, 0, 0, 1, 1, 1]
    (place,) = np.flatnonzero((made.plan.part == 0) & (made.plan.index == 3))
    whole = corrupt_clouds(made.known[0].batch([3]), "cutout", 5, indices=[3])
    assert torch.equal(x[place], Frame(points=50)(whole)[0])
    every = Stream(replace(spec, corruptions=("all",)), frame=Frame(points=50), root=tmp_path)
    assert every.spec.corruptions == CLOUD_CORRUPTIONS
    assert StreamSpec(known="h5:mine.h5", corruptions=("all",)).corruptions == CLOUD_CORRUPTIONS
    with pytest.raises(ValueError, match=r"fog cannot be done to torch\.float32"):
        Stream(replace(spec, corruptions=("fog",)), frame=Frame(points=50), root=tmp_path)
