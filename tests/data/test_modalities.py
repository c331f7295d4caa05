"""Images and clouds each own what is done to samples; a data set says which it is of."""

import numpy as np
import pytest
import torch

from owttt.data.corruptions.clouds import corrupt_clouds
from owttt.data.corruptions.images import corrupt
from owttt.data.dataset import ArrayImages
from owttt.data.generated import GENERATED
from owttt.data.generated.solids import Solids
from owttt.data.modalities import CLOUDS, IMAGES, Frame, Look, Variation, modality_of
from owttt.data.registry import common_corruptions_of, corruptions_of, kind_of, load
from owttt.data.streams.spec import StreamSpec
from owttt.data.streams.stream import Stream


def images(count=6):
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 16, 16), dtype=np.uint8)
    return ArrayImages(pixels, np.arange(count) % 2, ["a", "b"])


def test_a_data_set_says_what_it_is_of():
    assert images().modality is IMAGES
    assert images().subset([1, 2]).modality is IMAGES
    assert Solids(4).modality is CLOUDS
    for name in ("noise", "uniform-noise", "solids"):
        assert load(name).modality is GENERATED[name].modality
        assert kind_of(name) == GENERATED[name].modality.name
    assert [kind_of(name) for name in ("cifar10", "modelnet40", "folder:x", "h5:x", "npz:x", "my.data:open")] == [
        "images", "clouds", "images", "clouds", None, None,
    ]  # fmt: skip
    assert corruptions_of("modelnet40") == CLOUDS.corruptions
    assert corruptions_of("npz:x") == (*IMAGES.corruptions, *CLOUDS.corruptions)
    assert common_corruptions_of("cifar10") == IMAGES.common
    assert len(IMAGES.common) == len(CLOUDS.common) == 15
    assert common_corruptions_of("npz:x") is None


def test_corrupting_goes_to_the_right_room():
    pictures, clouds = images().batch([0, 1]), Solids(4).batch([0, 1])
    fogged = IMAGES.corrupt(pictures, Look("fog", 3), [0, 1], upright=2)
    assert torch.equal(fogged, corrupt(pictures, "fog", 3, indices=[0, 1]))
    sheared = CLOUDS.corrupt(clouds, Look("shear", 3), [0, 1], upright=1)
    assert torch.equal(sheared, corrupt_clouds(clouds, "shear", 3, indices=[0, 1], upright=1))
    with pytest.raises(ValueError, match=r"fog cannot be done to torch.float32 .*must be RGB images"):
        IMAGES.corrupt(pictures.float(), Look("fog", 3), [0, 1], upright=2)


def test_framing_and_drawing():
    frame = Frame(size=8, points=10)
    assert IMAGES.framed(images().batch([0]), frame).shape == (1, 3, 8, 8)
    assert CLOUDS.framed(Solids(2).batch([0]), frame).shape == (1, 10, 3)
    assert frame(Solids(2).batch([0])).shape == (1, 10, 3)
    drawn = IMAGES.picture(torch.full((3, 4, 4), 0.5), side=8)
    assert (drawn.dtype, tuple(drawn.shape), int(drawn[0, 0, 0])) == (torch.uint8, (3, 8, 8), 128)
    assert CLOUDS.picture(Solids(2).sample(0)).shape == (3, 96, 96)
    assert modality_of(Solids(2).batch([0])) is CLOUDS


def test_varying_is_the_generator_s():
    variation = Variation(pad=2, augmix=True, color=0.4)
    first, second = (
        IMAGES.varied(images().batch(range(6)), variation, torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert 0 <= float(first.min()) <= float(first.max()) <= 1
    plain = IMAGES.varied(images().batch(range(6)), Variation(pad=0, flip=False), torch.Generator())
    assert torch.equal(plain, images().batch(range(6)))


def test_every_sample_is_drawn_by_its_own_vertical_axis():
    """Unknown clouds whose y is upright stand beside known ones whose z is."""
    known = Solids(6)
    lying = ArrayImages(known.batch(range(6)).roll(-1, dims=2).numpy(), np.zeros(6, int), ["thing"], upright=1)
    spec = StreamSpec(known="npz:k.npz", unknown=("npz:u.npz",), batch_size=4)
    stream = Stream(spec, known=known, unknown=[lying])
    for place in range(len(stream.plan)):
        expected = CLOUDS.picture(known.sample(int(stream.plan.index[place])))
        assert torch.equal(stream.picture(place), expected)
