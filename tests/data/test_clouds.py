"""Corruptions of clouds: literal loops, the same for a cloud everywhere; clouds of voxels and of digits."""

import math

import numpy as np
import pytest
import torch

from owttt import SourceStats, models, wrap
from owttt.bench.report.cloud_corruptions import cloud_corruptions
from owttt.data.corruptions.clouds import CLOUD_CONSTANTS, CLOUD_CORRUPTIONS, corrupt_clouds
from owttt.data.corruptions.clouds.points import in_unit_ball
from owttt.data.corruptions.clouds.view import standpoint, visible
from owttt.data.corruptions.randomness import Randomness
from owttt.data.dataset import ArrayImages
from owttt.data.generated.solids import SOLIDS, Solids
from owttt.data.modalities import Frame
from owttt.data.readers.voxels import DigitClouds, VoxelClouds, surface
from owttt.data.registry import load


def spheres(count=5, points=256):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, points, 3, generator=generator)
    return in_unit_ball(x / x.norm(dim=2, keepdim=True))


def cube(points):
    """The published normalization, literally."""
    low = [min(point[axis] for point in points) for axis in range(3)]
    high = [max(point[axis] for point in points) for axis in range(3)]
    longest = max(high[axis] - low[axis] for axis in range(3))
    return torch.tensor(
        [[2 * (point[axis] - (low[axis] + high[axis]) / 2) / longest for axis in range(3)] for point in points]
    )


def differing(one, two):
    return (one - two).abs().amax(dim=2).gt(1e-3).float().mean()


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("name", CLOUD_CORRUPTIONS)
def test_a_cloud_is_corrupted_the_same_way_everywhere(name, severity):
    clouds = spheres()
    whole = corrupt_clouds(clouds, name, severity, indices=range(10, 15))
    assert whole.shape == clouds.shape
    assert whole.isfinite().all()
    assert whole.abs().max() <= 1.5
    assert not torch.equal(whole, clouds)
    part = corrupt_clouds(clouds[[3, 1]], name, severity, indices=[13, 11])
    assert torch.allclose(part, whole[[3, 1]], atol=1e-5)
    other = corrupt_clouds(clouds, name, severity, indices=range(10, 15), seed=1)
    assert not torch.equal(other, whole)


PUBLISHED = {
    "occlusion": (1, 2, 3, 4, 5),
    "lidar": (1, 2, 3, 4, 5),
    "density_inc": (1, 2, 3, 4, 5),
    "density": (1, 2, 3, 4, 5),
    "cutout": (2, 3, 5, 7, 10),
    "uniform": (0.01, 0.02, 0.03, 0.04, 0.05),
    "gaussian": (0.01, 0.015, 0.02, 0.025, 0.03),
    "impulse": (1 / 30, 1 / 25, 1 / 20, 1 / 15, 1 / 10),
    "upsampling": (1 / 5, 1 / 4, 1 / 3, 1 / 2, 1),
    "background": (1 / 45, 1 / 40, 1 / 35, 1 / 30, 1 / 20),
    "rotation": (2.5, 5, 7.5, 10, 15),
    "shear": (0.05, 0.1, 0.15, 0.2, 0.25),
    "distortion": (0.1, 0.2, 0.3, 0.4, 0.5),
    "distortion_rbf": (0.025, 0.05, 0.075, 0.1, 0.125),
    "distortion_rbf_inv": (0.025, 0.05, 0.075, 0.1, 0.125),
}


def test_the_constants_are_the_published_ones():
    assert {name: constants for name, (_, constants) in CLOUD_CONSTANTS.items()} == PUBLISHED


@pytest.mark.parametrize("name", CLOUD_CORRUPTIONS)
def test_scale_place_type_and_vertical_axis_do_not_matter(name):
    clouds = spheres()
    made = corrupt_clouds(clouds, name, 5, indices=range(5))
    moved = corrupt_clouds(7 * clouds.double() + 3, name, 5, indices=range(5))
    assert moved.dtype == torch.float32
    assert differing(moved, made) < 0.02, "rounding may turn a point at an edge"
    for axis in range(3):
        lying = corrupt_clouds(clouds.roll(axis - 2, dims=2), name, 5, indices=range(5), upright=axis)
        assert differing(lying.roll(2 - axis, dims=2), made) < 0.02


def test_rotation_is_three_turns_one_after_the_other():
    cloud = spheres(1)
    made = corrupt_clouds(cloud, "rotation", 5, indices=[7])
    random = Randomness("0/rotation/5", [7])
    sizes = random.uniform(12.5, 17.5, 3)[0]
    angles = (sizes * (2 * random.integers(0, 2, 3)[0] - 1) * math.pi / 180).tolist()
    x = cloud[0].double()
    for axis, angle in enumerate(angles):
        c, s = math.cos(angle), math.sin(angle)
        matrix = [
            [[1, 0, 0], [0, c, -s], [0, s, c]],
            [[c, 0, s], [0, 1, 0], [-s, 0, c]],
            [[c, -s, 0], [s, c, 0], [0, 0, 1]],
        ][axis]
        x = x @ torch.tensor(matrix, dtype=torch.double)
    assert torch.allclose(made[0], cube(x.tolist()), atol=1e-5)


def test_free_form_deformation_is_a_bernstein_sum():
    cloud = spheres(1, 12)
    made = corrupt_clouds(cloud, "distortion", 4, indices=[2])
    moved = 2 * Randomness("0/distortion/4", [2]).uniform(-0.4, 0.4, 5, 5, 5, 3)[0].double()

    def bernstein(i, u):
        return math.comb(4, i) * u**i * (1 - u) ** (4 - i)

    expected = cloud[0].double().clone()
    for number, (x, y, z) in enumerate(((cloud[0].double() + 1) / 2).tolist()):
        for i in range(5):
            for j in range(5):
                for k in range(5):
                    expected[number] += bernstein(i, x) * bernstein(j, y) * bernstein(k, z) * moved[i, j, k]
    assert torch.allclose(made[0], cube(expected.tolist()), atol=1e-5)


@pytest.mark.parametrize("name", ["distortion_rbf", "distortion_rbf_inv"])
def test_radial_functions_take_control_points_where_they_were_moved(name):
    """Interpolation: a point that is a control point moves as it did."""
    side = torch.linspace(-1, 1, 5)
    control = torch.cartesian_prod(side, side, side)
    operation, _ = CLOUD_CONSTANTS[name]
    made = operation(control[None], 0.075, Randomness("some", [0]))
    alpha, gamma = Randomness("some", [0]).uniform(-math.pi, math.pi, 2, 125)[0]
    moved = 0.075 * torch.stack((alpha.cos() * gamma.sin(), alpha.sin() * gamma.sin(), gamma.cos()), dim=1)
    assert torch.allclose(made[0], cube((control + moved).tolist()), atol=1e-4)


def test_cut_and_thinned_clouds_are_of_their_own_points():
    cloud = spheres(1, 1024)
    for name, least, most in (("cutout", 1024 - 300, 1024 - 300), ("density", 1024 - 375, 1024 - 375)):
        made = corrupt_clouds(cloud, name, 5, indices=[0])[0]
        kept = {tuple(p) for p in made.tolist()}
        assert torch.cdist(made, cloud[0], compute_mode="donot_use_mm_for_euclid_dist").amin(dim=1).max() < 1e-5
        assert least <= len(kept) <= most
    dense = corrupt_clouds(cloud, "density_inc", 2, indices=[0])[0]
    twice = [count for count in np.unique(dense.numpy(), axis=0, return_counts=True)[1] if count >= 2]
    assert len(twice) >= 100


def test_shear_keeps_heights():
    cloud = spheres(1, 50)
    made = corrupt_clouds(cloud, "shear", 5, indices=[4])[0]
    random = Randomness("0/shear/5", [4])
    sizes = random.uniform(0.2, 0.3, 4)[0]
    b, d, e, f = (sizes * (2 * random.integers(0, 2, 4)[0] - 1)).tolist()
    assert torch.allclose(
        made, cube([[x + d * z + f * y, y + b * x + e * z, z] for x, y, z in cloud[0].tolist()]), atol=1e-5
    )


def test_noise_moves_as_far_as_it_says():
    cloud = spheres(1, 1024)
    inside = cloud[0].abs().amax(dim=1) < 0.8
    gaussian = corrupt_clouds(cloud, "gaussian", 5, indices=[0])
    assert (gaussian - cloud)[0][inside].std() == pytest.approx(0.03, rel=0.05)
    shift = Randomness("0/uniform/5", [0]).uniform(-0.05, 0.05, 1024, 3)[0]
    moved = [
        [p + q for p, q in zip(*pair, strict=True)] for pair in zip(cloud[0].tolist(), shift.tolist(), strict=True)
    ]
    assert torch.allclose(corrupt_clouds(cloud, "uniform", 5, indices=[0])[0], cube(moved), atol=1e-5)


def test_impulses_hit_a_share_of_the_points_by_a_tenth_in_each_direction():
    cloud = spheres(1, 1024)
    random = Randomness("0/impulse/5", [0])
    hit = random.uniform(0, 1, 1024).argsort(dim=1)[0, :102]
    signs = 2 * random.integers(0, 2, 102, 3)[0] - 1
    expected = cloud[0].clone()
    for number, sign in zip(hit.tolist(), signs, strict=True):
        expected[number] += 0.1 * sign
    made = corrupt_clouds(cloud, "impulse", 5, indices=[0])[0]
    assert torch.allclose(made, cube(expected.tolist()), atol=1e-5)


def test_points_are_added_near_others_or_anywhere():
    cloud = spheres(1, 60)
    random = Randomness("0/upsampling/3", [7])
    copied = random.uniform(0, 1, 60).argsort(dim=1)[0, :20]
    near = cloud[0, copied] + random.uniform(-0.05, 0.05, 20, 3)[0]
    drawn = random.uniform(0, 1, 80).argsort(dim=1)[0, :60]
    expected = cube([*cloud[0].tolist(), *near.tolist()])[drawn]
    assert torch.allclose(corrupt_clouds(cloud, "upsampling", 3, indices=[7])[0], expected, atol=1e-5)
    random = Randomness("0/background/5", [7])
    anywhere = random.uniform(-1, 1, 3, 3)[0]
    drawn = random.uniform(0, 1, 63).argsort(dim=1)[0, :60]
    expected = cube([*cloud[0].tolist(), *anywhere.tolist()])[drawn]
    assert torch.allclose(corrupt_clouds(cloud, "background", 5, indices=[7])[0], expected, atol=1e-5)


@pytest.mark.parametrize("fifth", range(1, 6))
def test_viewers_stand_on_their_fifth_of_the_circle(fifth):
    random = Randomness("some", range(200))
    for distance, angles in ((3, (math.pi / 6, math.pi / 3)), (5, (math.pi / 8, math.pi / 8))):
        tilt = math.pi / 2 + torch.linspace(*angles, 200)
        x, y, z = standpoint(tilt, fifth, distance, random).unbind(dim=1)
        assert torch.allclose(torch.stack((x, y, z)).norm(dim=0), torch.tensor(float(distance)))
        assert torch.allclose(z, distance * torch.linspace(*angles, 200).sin(), atol=1e-4), "above, and looking down"
        around = torch.atan2(y, x) - torch.atan2(y, x)[0]
        spread = torch.atan2(around.sin(), around.cos())
        assert 0.8 * 2 * math.pi / 5 < spread.max() - spread.min() <= 2 * math.pi / 5 + 1e-4


def test_a_lidar_sees_points_on_beams_a_degree_apart():
    cloud = spheres(1, 1024)
    made = corrupt_clouds(cloud, "lidar", 2, indices=[3])
    position = standpoint(torch.tensor([5 / 8 * math.pi]), 2, 5.0, Randomness("0/lidar/2", [3]))
    offset = made - position[:, None]
    height = torch.asin(offset[0, :, 2] / offset[0].norm(dim=1)) * 180 / math.pi
    beams = height - height.min()
    assert (beams - beams.round()).abs().max() < 1e-2
    assert beams.max() > 10


def test_only_the_front_of_a_sphere_is_seen():
    cloud = spheres(1, 1024)
    position = torch.tensor([[3.0, 0.0, 0.0]])
    seen = visible(cloud, position)[0]
    assert cloud[0][seen][:, 0].min() > -0.45, "nothing of the back"
    assert 0.2 < seen.float().mean() < 0.6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fog", 5), "No corruption 'fog' of clouds"),
        (("lidar", 6), "severity must be 1 to 5"),
    ],
)
def test_mistakes(words, message):
    with pytest.raises(ValueError, match=message):
        corrupt_clouds(spheres(), *words, indices=range(5))
    with pytest.raises(ValueError, match=r"Expected clouds \(B, P, 3\) in float"):
        corrupt_clouds(torch.zeros(2, 3, 8, 8), "lidar", 1, indices=range(2))
    with pytest.raises(ValueError, match="one index for each"):
        corrupt_clouds(spheres(), "lidar", 1, indices=range(2))
    with pytest.raises(ValueError, match="axis 0, 1 or 2"):
        corrupt_clouds(spheres(), "lidar", 1, indices=range(5), upright=3)


def test_the_surface_of_a_solid():
    solid = np.zeros((6, 6, 6), bool)
    solid[1:5, 1:5, 1:5] = True
    made = surface(solid)
    assert made.sum() == 64 - 8
    assert not made[2:4, 2:4, 2:4].any()
    assert surface(np.ones((3, 3, 3), bool)).sum() == 26, "the end of the grid is empty"


def test_clouds_from_voxels():
    grids = np.zeros((3, 8, 8, 8), np.uint8)
    grids[0, 2:6, 2:6, 2:6] = grids[2, 1:7, 3:5, 3:5] = 1
    clouds = VoxelClouds(grids, np.array([0, 1, 1]), ["box", "rod"], points=200)
    assert len(clouds) == 2, "the empty grid is left out"
    assert clouds.labels.tolist() == [0, 1]
    cloud = clouds.sample(0)
    assert cloud.shape == (200, 3)
    assert cloud.norm(dim=1).max() == pytest.approx(1, abs=1e-5)
    assert torch.equal(cloud, clouds.sample(0))
    rod = clouds.sample(1)
    assert rod[:, 0].std() > 2 * rod[:, 1].std()


def test_clouds_from_digits():
    image = np.zeros((1, 1, 28, 28), np.uint8)
    image[0, 0, 4:24, 13:15] = 255
    one = DigitClouds(ArrayImages(image, [1], ["0", "1"]), points=128).sample(0)
    assert one.shape == (128, 3)
    assert one[:, 2].std() > 2 * one[:, 0].std(), "a one is upright"


def test_a_frame_gives_clouds_their_number_of_points():
    clouds = spheres(2, 100)
    assert Frame(points=100)(clouds) is clouds
    assert Frame()(clouds) is clouds
    few = Frame(points=30)(clouds)
    assert few.shape == (2, 30, 3)
    assert torch.equal(few, Frame(points=30)(clouds))
    many = Frame(points=250)(clouds)
    assert torch.equal(many[:, 100:200], clouds)


def test_solids_are_made_of_their_number():
    solids = load("solids")
    assert [solids.classes[label] for label in solids.labels[:8]] == [*SOLIDS, "ball"]
    clouds = solids.batch(range(len(SOLIDS)), Frame(points=256))
    assert clouds.shape == (len(SOLIDS), 256, 3)
    assert torch.equal(clouds[3], solids.batch([3], Frame(points=256))[0])
    assert not torch.equal(solids.sample(0), solids.sample(len(SOLIDS))), "each is squeezed in its own way"
    ticks = np.linspace(-0.99, 0.99, 60)
    x, y, z = np.meshgrid(ticks, ticks, ticks, indexing="ij")
    shares = {name: inside(x, y, z).mean() * 8 for name, inside in SOLIDS.items()}
    assert shares["ball"] == pytest.approx(4 / 3 * math.pi, rel=0.05)
    assert shares["box"] == pytest.approx(8, rel=0.05)
    assert shares["cylinder"] == pytest.approx(2 * math.pi, rel=0.05)
    assert shares["cone"] == pytest.approx(2 / 3 * math.pi, rel=0.05)
    assert shares["torus"] == pytest.approx(2 * math.pi**2 * 0.7 * 0.3**2, rel=0.05)
    assert shares["table"] == pytest.approx(1 + 4 * 0.3**2 * 1.75, rel=0.1)
    assert shares["chair"] == pytest.approx(4 * 0.3 + 4 * 0.3**2 * 0.8 + 2 * 0.25 * 0.9, rel=0.1)


def test_a_page_of_clouds_shows_their_corruptions():
    def run(*corruptions):
        return {"spec": {"stream": {"corruptions": corruptions, "severity": 4}}}

    assert cloud_corruptions([run(), run("snow")]) == []
    shown = cloud_corruptions([run("lidar"), run("lidar"), run("shear", "distortion_rbf"), run("snow")])
    assert [one.title for one in shown] == ["clean", *(f"{name.replace('_', ' ')} 4" for name in CLOUD_CORRUPTIONS)]
    assert {len(one.sources) for one in shown} == {3}


def test_clouds_of_any_scale_are_no_outliers():
    model = models.load("modelnet10-dgcnn")
    clouds = Solids(6).batch(range(6), Frame(points=256))
    source = SourceStats.fit(model, [(clouds, torch.arange(6) % 10)] * 2 + [(clouds[:4], torch.arange(6, 10))], 10)
    plain, large = (wrap(model, "test", source=source) for _ in range(2))
    assert torch.allclose(plain(clouds).scores, large(clouds * 1000).scores, atol=1e-5)
    assert large.events == []
