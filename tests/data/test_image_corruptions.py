"""The corruptions: the same pixels whatever the batch, and the statistics of the published images."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from owttt.data.corruptions.images import COMMON, CONSTANTS, CORRUPTIONS, EXTRA, corrupt, filters, frost_from_folder
from owttt.data.corruptions.images.color import from_hsv, to_hsv

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.nn.functional.interpolate(
    torch.rand(7, 3, 6, 6, generator=GENERATOR), size=32, mode="bicubic", antialias=False
).clamp(0, 1)
IMAGES = (IMAGES * 255).to(torch.uint8)
SEEDLESS = {
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
    "saturate",
}


def test_there_are_fifteen_and_four():
    assert (len(COMMON), len(EXTRA)) == (15, 4)
    assert CONSTANTS.keys() == CORRUPTIONS.keys()
    assert all(len(CONSTANTS[name][size]) == 5 for name in CORRUPTIONS for size in (32, 224))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_gets_the_same_pixels_in_any_batch(name, monkeypatch):
    whole = corrupt(IMAGES, name, 3, indices=range(10, 17))
    assert whole.shape == IMAGES.shape
    assert whole.dtype == torch.uint8
    order = torch.tensor([5, 0, 3])
    assert torch.equal(corrupt(IMAGES[order], name, 3, indices=order + 10), whole[order])
    monkeypatch.setattr("owttt.data.corruptions.images._CHUNK", 2 * 32 * 32)
    assert torch.equal(corrupt(IMAGES, name, 3, indices=range(10, 17)), whole)
    other = corrupt(IMAGES, name, 3, indices=range(10, 17), seed=1)
    assert torch.equal(other, whole) == (name in SEEDLESS)
    assert not torch.equal(whole, IMAGES)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("shape", [(28, 28), (48, 64), (130, 131)])
def test_any_size(name, severity, shape):
    images = (torch.rand(2, 3, *shape, generator=torch.Generator().manual_seed(1)) * 255).to(torch.uint8)
    assert corrupt(images, name, severity, indices=[0, 1]).shape == images.shape
    assert corrupt(torch.zeros_like(images), name, severity, indices=[0, 1]).shape == images.shape
    assert corrupt(images[:0], name, severity, indices=[]).shape == (0, 3, *shape)


@pytest.mark.parametrize(
    "name", ["gaussian_noise", "defocus_blur", "fog", "contrast", "impulse_noise", "jpeg_compression"]
)
def test_severity_rises(name):
    errors = [float((corrupt(IMAGES, name, s, indices=range(7)).float() - IMAGES).square().mean()) for s in range(1, 6)]
    assert errors == sorted(errors)


def test_bad_input_is_told():
    with pytest.raises(ValueError, match="No corruption 'rain'"):
        corrupt(IMAGES, "rain", 1, indices=range(7))
    with pytest.raises(ValueError, match="severity must be 1 to 5, got 0"):
        corrupt(IMAGES, "fog", 0, indices=range(7))
    with pytest.raises(ValueError, match=r"uint8 images \(B, 3, H, W\), got torch.float32"):
        corrupt(IMAGES.float(), "fog", 1, indices=range(7))
    with pytest.raises(ValueError, match="one index for each of 7 images, got 3"):
        corrupt(IMAGES, "fog", 1, indices=range(3))


def test_frost_from_photographs(tmp_path):
    with pytest.raises(ValueError, match="no PNG or JPEG"):
        frost_from_folder(tmp_path)
    Image.fromarray(np.full((300, 400, 3), 200, np.uint8)).save(tmp_path / "ice.png")
    black = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    icy = corrupt(black, "frost", 5, indices=[0, 1], frost=frost_from_folder(tmp_path))
    assert torch.equal(icy, torch.full_like(icy, int(0.45 * 200)))
    with pytest.raises(ValueError, match="smaller than the images"):
        corrupt(
            torch.zeros(1, 3, 500, 500, dtype=torch.uint8), "frost", 1, indices=[0], frost=frost_from_folder(tmp_path)
        )


def test_hsv_round_trip():
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    x[0, :, 0] = 0.5
    x[0, :, 1] = 0
    torch.testing.assert_close(from_hsv(*to_hsv(x)), x)


def test_filters_against_scipy():
    from scipy import ndimage

    x = torch.rand(1, 1, 20, 24, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    image = x[0, 0].numpy()
    for sigma in (0.3, 0.7, 2.0, 9.0):
        expected = ndimage.gaussian_filter(image, sigma, mode="nearest")
        np.testing.assert_allclose(filters.gaussian_blur(x, sigma)[0, 0], expected, atol=1e-6)
        expected = ndimage.gaussian_filter(image, sigma, mode="reflect", truncate=3)
        np.testing.assert_allclose(filters.gaussian_blur(x, sigma, 3, "symmetric")[0, 0], expected, atol=1e-6)
    rows, columns = torch.rand(2, 1, 20, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) * 40 - 8
    for mode, theirs in (("symmetric", "reflect"), ("reflect", "mirror"), ("replicate", "nearest")):
        expected = ndimage.map_coordinates(image, [rows[0].numpy(), columns[0].numpy()], order=1, mode=theirs)
        np.testing.assert_allclose(filters.sample(x, rows, columns, mode)[0, 0], expected, atol=1e-9)
    zoomed = ndimage.zoom(image[2:18, 2:22], 1.25, order=1)
    assert filters.centre_zoom(x, 1.25).shape == x.shape
    top, left = (zoomed.shape[0] - 20) // 2, (zoomed.shape[1] - 24) // 2
    np.testing.assert_allclose(filters.centre_zoom(x, 1.25)[0, 0], zoomed[top : top + 20, left : left + 24], atol=1e-9)


def psnr(a, b):
    error = (a.float() - b.float()).square().flatten(1).mean(dim=1).clamp_min(1e-3)
    return float((10 * torch.log10(255**2 / error)).mean())


TOLERANCE = {"frost": (1.2, 0.06)}
"""PSNR in dB and channel mean and deviation in [0, 1]; frost is synthetic here, and 40 images show few photographs."""


@pytest.mark.parametrize("name", COMMON)
@pytest.mark.parametrize("severity", range(1, 6))
def test_against_the_published_generator(name, severity):
    folder = os.environ.get("OWTTT_TEST_DATA")
    if not folder:
        pytest.skip("set OWTTT_TEST_DATA to a folder with cifar10c_reference.npz")
    data = np.load(Path(folder) / "cifar10c_reference.npz", allow_pickle=False)
    clean, published = (torch.from_numpy(v.transpose(0, 3, 1, 2)) for v in (data["clean"], data[name][severity - 1]))
    draws = [corrupt(clean, name, severity, indices=data["idx"].tolist(), seed=seed) for seed in range(4)]
    decibels, level = TOLERANCE.get(name, (0.6, 0.015))
    assert np.mean([psnr(draw, clean) for draw in draws]) == pytest.approx(psnr(published, clean), abs=decibels)
    ours, theirs = torch.cat(draws).float() / 255, published.float() / 255
    torch.testing.assert_close(ours.mean(dim=(0, 2, 3)), theirs.mean(dim=(0, 2, 3)), atol=level, rtol=0)
    torch.testing.assert_close(ours.std(dim=(0, 2, 3)), theirs.std(dim=(0, 2, 3)), atol=level, rtol=0)
