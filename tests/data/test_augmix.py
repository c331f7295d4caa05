"""AugMix against loops over pixels."""

import math

import pytest
import torch

from owttt.data.modalities import augmix as module
from owttt.data.modalities.augmix import OPERATIONS, augmix

IMAGES = torch.rand(5, 3, 12, 12, generator=torch.Generator().manual_seed(0))
STRENGTHS = torch.tensor([-0.3, -0.1, 0.05, 0.2, 0.3])


def sampled(image, x, y):
    """Read an image between its pixels, black outside: bilinear, centers of pixels at (2i + 1)/n - 1."""
    _, height, width = image.shape
    column, row = ((x + 1) * width - 1) / 2, ((y + 1) * height - 1) / 2
    left, top = math.floor(column), math.floor(row)
    total = torch.zeros(3)
    for i, wy in ((top, 1 - (row - top)), (top + 1, row - top)):
        for j, wx in ((left, 1 - (column - left)), (left + 1, column - left)):
            if 0 <= i < height and 0 <= j < width:
                total += wx * wy * image[:, i, j]
    return total


MOVES = {
    "rotate": lambda s, x, y: (
        math.cos(s * math.pi / 6) * x - math.sin(s * math.pi / 6) * y,
        math.sin(s * math.pi / 6) * x + math.cos(s * math.pi / 6) * y,
    ),
    "shear_x": lambda s, x, y: (x + 0.3 * s * y, y),
    "shear_y": lambda s, x, y: (x, y + 0.3 * s * x),
    "shift_x": lambda s, x, y: (x + 2 / 3 * s, y),
    "shift_y": lambda s, x, y: (x, y + 2 / 3 * s),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_are_read_pixel_by_pixel(name):
    made = getattr(module, name)(IMAGES, STRENGTHS)
    for image, strength, result in zip(IMAGES, STRENGTHS.tolist(), made, strict=True):
        for i in range(12):
            for j in range(12):
                x, y = (2 * j + 1) / 12 - 1, (2 * i + 1) / 12 - 1
                expected = sampled(image, *MOVES[name](strength, x, y))
                assert torch.allclose(result[:, i, j], expected, atol=1e-5)


def test_tones_are_changed_pixel_by_pixel():
    stretched, equalized = module.stretch(IMAGES, STRENGTHS), module.equalize(IMAGES, STRENGTHS)
    posterized, solarized = module.posterize(IMAGES, STRENGTHS), module.solarize(IMAGES, STRENGTHS)
    for n in range(5):
        bits = 7 - math.floor(3.99 * abs(STRENGTHS[n].item()))
        for c in range(3):
            values = IMAGES[n, c].flatten().tolist()
            for place, value in enumerate(values):
                i, j = divmod(place, 12)
                low, high = min(values), max(values)
                assert stretched[n, c, i, j] == pytest.approx((value - low) / (high - low), abs=1e-5)
                assert equalized[n, c, i, j] == pytest.approx(sum(v < value for v in values) / 143, abs=1e-6)
                assert posterized[n, c, i, j] == pytest.approx(math.floor(value * 255 / 256 * 2**bits) / 2**bits)
                dark = value < 1 - abs(STRENGTHS[n].item())
                assert solarized[n, c, i, j] == pytest.approx(value if dark else 1 - value)


def test_constant_images_stay_finite():
    flat = torch.full((5, 3, 12, 12), 0.5)
    assert all(operation(flat, STRENGTHS).isfinite().all() for operation in OPERATIONS)


def test_chains_are_mixed_with_each_other_and_with_the_image(monkeypatch):
    """With operations that add, the result shows how many were applied: 1 to 3 per chain, weights that sum to 1."""
    monkeypatch.setattr(module, "OPERATIONS", tuple([lambda images, _: images + 1] * 9))
    many = torch.zeros(4000, 3, 2, 2)
    made = augmix(many, torch.Generator().manual_seed(0))[:, 0, 0, 0]
    assert float(made.min()) >= 0
    assert 2.5 < float(made.max()) <= 3, "at most three operations in every chain, the image all but gone"
    assert float(made.mean()) == pytest.approx(1.0, abs=0.05), "two operations on average, half of the image"
    assert torch.equal(
        augmix(IMAGES, torch.Generator().manual_seed(3)), augmix(IMAGES, torch.Generator().manual_seed(3))
    )


def test_it_stays_in_range_and_changes_images():
    made = augmix(IMAGES, torch.Generator().manual_seed(0))
    assert 0 <= float(made.min()) <= float(made.max()) <= 1
    assert (made - IMAGES).abs().amax(dim=(1, 2, 3)).gt(0.01).all()
