"""Every loader on files in the official format; what is truncated, foreign or missing is named."""

import gzip
import os

import numpy as np
import pytest
import torch
from PIL import Image

from owttt.data import Frame, load
from owttt.data.catalog import catalog
from owttt.data.classes import align, without_known
from owttt.data.dataset import ArrayImages, Framed
from owttt.data.fetching.npm import CIFAR10_CLASSES
from owttt.data.generated import GENERATED
from owttt.data.generated.noise import Noise
from owttt.data.registry import CORRUPTED, OPENERS, corruptions_of
from tests import official


def test_every_set_of_the_catalog_can_be_opened_and_says_where_it_comes_from():
    assert set(catalog()) == {*OPENERS, *CORRUPTED}
    for name, entry in catalog().items():
        assert entry.files, name
        assert entry.sources or entry.by_hand, name
        assert entry.about, name
        assert entry.license, name


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar10(tmp_path, split):
    files = [f"data_batch_{n}.bin" for n in range(1, 6)] if split == "train" else ["test_batch.bin"]
    pixels, labels = official.cifar(tmp_path / "cifar-10-batches-bin", files)
    data = load("cifar10", split, root=tmp_path)
    assert len(data) == len(pixels)
    assert data.classes[3] == "class 3"
    assert data.labels.tolist() == labels.tolist()
    assert (data.batch([5, 0]).numpy() == pixels[[5, 0]]).all()
    assert (data.sample(6).numpy() == pixels[6]).all()


def test_cifar100_takes_the_fine_label(tmp_path):
    pixels, labels = official.cifar(
        tmp_path / "cifar-100-binary", ["test.bin"], labels=2, classes=100, names="fine_label_names.txt"
    )
    data = load("cifar100", root=tmp_path)
    assert data.labels.tolist() == labels.tolist()
    assert (data.batch(range(7)).numpy() == pixels).all()


def test_a_truncated_cifar_file_is_named(tmp_path):
    official.cifar(tmp_path / "cifar-10-batches-bin", ["test_batch.bin"])
    file = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"test_batch\.bin: 21506 bytes.*truncated"):
        load("cifar10", root=tmp_path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "mnist"), ("fashion-mnist", "fashion-mnist")])
def test_idx_files(tmp_path, name, folder, packed):
    images, labels = official.mnist(tmp_path / folder, packed)
    data = load(name, root=tmp_path)
    assert data.labels.tolist() == labels.tolist()
    assert (data.batch([2, 4]).numpy() == images[[2, 4], None]).all()
    assert data.batch([1], Frame(32)).shape == (1, 3, 32, 32)


def test_a_truncated_or_foreign_idx_file_is_named(tmp_path):
    official.mnist(tmp_path / "mnist")
    file = tmp_path / "mnist" / "t10k-images-idx3-ubyte"
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:3], b"\x89PNG" + whole[4:], b""):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="t10k-images-idx3-ubyte: not a whole idx file"):
            load("mnist", root=tmp_path)
    file.unlink()
    file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(ValueError, match=r"ubyte\.gz: not a whole idx file"):
        load("mnist", root=tmp_path)


def test_svhn_calls_zero_zero(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    images = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 5), dtype=np.uint8)
    (tmp_path / "svhn").mkdir()
    path = tmp_path / "svhn" / "test_32x32.mat"
    scipy_io.savemat(path, {"X": images, "y": np.array([[10], [1], [9], [10], [5]], np.uint8)})
    data = load("svhn", root=tmp_path)
    assert data.labels.tolist() == [0, 1, 9, 0, 5]
    assert (data.sample(3).numpy() == images[..., 3].transpose(2, 0, 1)).all()
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"test_32x32\.mat: not a whole SVHN file"):
        load("svhn", root=tmp_path)


@pytest.mark.parametrize(("name", "folder"), [("cifar10-c", "CIFAR-10-C"), ("cifar100-c", "CIFAR-100-C")])
def test_corrupted_cifar(tmp_path, name, folder):
    images, labels = official.cifar_c(tmp_path / folder)
    for severity in (1, 5):
        data = load(name, corruption="snow", severity=severity, root=tmp_path)
        part = slice(4 * (severity - 1), 4 * severity)
        assert (data.batch(range(4)).numpy() == images[part].transpose(0, 3, 1, 2)).all()
        assert data.labels.tolist() == labels[part].tolist()
    with pytest.raises(FileNotFoundError, match=rf"fog\.npy: no such file.*owttt data get {name}"):
        load(name, corruption="fog", severity=1, root=tmp_path)
    with pytest.raises(ValueError, match="needs a corruption and a severity from 1 to 5"):
        load(name, root=tmp_path)
    file = tmp_path / folder / "snow.npy"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"snow\.npy: not a whole npy file"):
        load(name, corruption="snow", severity=1, root=tmp_path)


def test_tiny_imagenet_and_its_overlap(tmp_path):
    official.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    train, test = load("tiny-imagenet", "train", root=tmp_path), load("tiny-imagenet", root=tmp_path)
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert test.labels.tolist() == [2, 1, 0]
    assert test.names == ("Egyptian cat", "reel", "lemon")
    assert test.batch([0, 1], Frame(32)).shape == (2, 3, 32, 32)
    left = without_known(test, ("airplane", "cat", "dog"))
    assert left.classes == ("n04067472", "n07749582")
    assert len(left) == 2
    assert without_known(test, ("n07749582",)).classes == ("n02124075", "n04067472")
    assert len(without_known(test, ("0", "1"))) == 3


def test_the_overlap_of_the_real_tiny_imagenet():
    folder = os.environ.get("OWTTT_TEST_DATA")
    if not folder:
        pytest.skip("set OWTTT_TEST_DATA to a folder with tinyimagenet_val.npz")
    tiny = load(f"npz:{folder}/tinyimagenet_val.npz")
    left = without_known(tiny, CIFAR10_CLASSES)
    overlap = [0, 5, 11, 35, 39, 41, 64, 66, 67, 78, 90, 114, 115, 117, 131, 135, 147, 157, 182, 183, 193, 194, 196]
    assert sorted(set(tiny.classes) - set(left.classes)) == sorted(tiny.classes[n] for n in overlap)
    assert len(left) == 10_000 - 50 * len(overlap)


def test_imagenet_trees(tmp_path):
    for number, wnid in enumerate(("n01440764", "n01443537")):
        for image in range(2):
            official.save_jpeg(tmp_path / "imagenet" / "val" / wnid / f"ILSVRC2012_val_{image}.JPEG", number)
            official.save_jpeg(tmp_path / "ImageNet-C" / "fog" / "3" / wnid / f"{image}.JPEG", number)
    official.save_jpeg(tmp_path / "imagenet-r" / "n01443537" / "art_0.jpg")
    validation = load("imagenet", root=tmp_path)
    assert validation.labels.tolist() == [0, 0, 1, 1]
    assert validation.classes == ("n01440764", "n01443537")
    assert validation.sample(0).shape == (3, 40, 50)
    assert len(load("imagenet-c", corruption="fog", severity=3, root=tmp_path)) == 4
    renditions = load("imagenet-r", root=tmp_path)
    assert renditions.classes == ("n01443537",)
    assert align(renditions, ("n01440764", "n01443537")).labels.tolist() == [1]


def test_visda_lists(tmp_path):
    folder = tmp_path / "visda-c" / "validation"
    official.save_jpeg(folder / "truck" / "a b.jpg")
    official.save_jpeg(folder / "horse" / "c.jpg")
    (folder / "image_list.txt").write_text("truck/a b.jpg 11\nhorse/c.jpg 4\n")
    data = load("visda-c", root=tmp_path)
    assert data.labels.tolist() == [11, 4]
    assert data.classes[4] == "horse"
    assert data.sample(0).shape == (3, 40, 50)


def test_textures(tmp_path):
    for name in ("banded", "dotted"):
        official.save_jpeg(tmp_path / "dtd" / "images" / name / f"{name}_1.jpg")
    (tmp_path / "dtd" / "labels").mkdir()
    (tmp_path / "dtd" / "labels" / "test1.txt").write_text("dotted/dotted_1.jpg\nbanded/banded_1.jpg\n")
    data = load("dtd", root=tmp_path)
    assert data.labels.tolist() == [1, 0]
    assert data.batch([0, 1], Frame(32)).shape == (2, 3, 32, 32)


def test_clouds(tmp_path):
    h5py = pytest.importorskip("h5py")
    random = np.random.default_rng(0)
    folder = tmp_path / "modelnet40_ply_hdf5_2048"
    folder.mkdir()
    clouds = random.normal(size=(3, 2048, 3)).astype(np.float32)
    for number in range(2):
        with h5py.File(folder / f"ply_data_test{number}.h5", "w") as file:
            file["data"], file["label"] = clouds, np.array([[0], [2], [number]], np.uint8)
    names = [f"data/modelnet40_ply_hdf5_2048/ply_data_test{n}.h5" for n in range(2)]
    (folder / "test_files.txt").write_text("\n".join(names) + "\n")
    (folder / "shape_names.txt").write_text("airplane\nbathtub\nbed\n")
    data = load("modelnet40", root=tmp_path)
    assert data.labels.tolist() == [0, 2, 0, 0, 2, 1]
    assert data.classes == ("airplane", "bathtub", "bed")
    assert (data.batch([1, 4]).numpy() == clouds[[1, 1]]).all()
    assert len(load(f"h5:{folder / 'ply_data_test0.h5'}")) == 3
    assert data.upright == data.subset([0]).upright == 1, "in these files y is vertical"
    with h5py.File(tmp_path / "turned.h5", "w") as file:
        file["data"], file["label"] = clouds.transpose(0, 2, 1), np.zeros(3)
    with pytest.raises(ValueError, match=r"data must be clouds \(N, P, 3\).*got \(3, 3, 2048\)"):
        load(f"h5:{tmp_path / 'turned.h5'}")

    (tmp_path / "modelnet40_c").mkdir()
    np.save(tmp_path / "modelnet40_c" / "data_shear_4.npy", clouds.astype(np.float64))
    np.save(tmp_path / "modelnet40_c" / "label.npy", np.array([[0], [1], [39]]))
    sheared = load("modelnet40-c", corruption="shear", severity=4, root=tmp_path)
    assert sheared.batch([2]).dtype == torch.float32
    assert sheared.labels.tolist() == [0, 1, 39]

    (tmp_path / "3d-mnist").mkdir()
    with h5py.File(tmp_path / "3d-mnist" / "test_point_clouds.h5", "w") as file:
        for number, (digit, points) in enumerate(((7, 3000), (2, 500))):
            group = file.create_group(str(number))
            group["points"] = random.normal(size=(points, 3))
            group.attrs["label"] = digit
    digits = load("3d-mnist", root=tmp_path)
    assert digits.labels.tolist() == [7, 2]
    cloud = digits.batch([0, 1])
    assert cloud.shape == (2, 1024, 3)
    assert cloud.norm(dim=2).max() <= 1.0001
    assert (digits.sample(1) == cloud[1]).all()


def test_missing_files_name_path_and_command(tmp_path):
    for name in catalog():
        with pytest.raises((FileNotFoundError, ImportError)) as caught:
            load(
                name,
                root=tmp_path,
                **({"corruption": corruptions_of(name)[7], "severity": 1} if name in CORRUPTED else {}),
            )
        text = str(caught.value)
        assert str(tmp_path) in text
        assert f"owttt data get {name}" in text or "Expected, below" in text
    with pytest.raises(ValueError, match=r"No data set 'cifar-10'\. Did you mean cifar10"):
        load("cifar-10")
    with pytest.raises(ValueError, match="imagenet-r has no split 'train'"):
        load("imagenet-r", "train", root=tmp_path)


def test_a_relative_path_is_found_in_the_data_root(tmp_path, monkeypatch):
    np.savez(tmp_path / "mine.npz", x=np.zeros((2, 8, 8), np.uint8), y=[0, 1])
    assert len(load("npz:mine.npz", root=tmp_path)) == 2
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    np.savez("mine.npz", x=np.zeros((3, 8, 8), np.uint8), y=[0, 1, 1])
    assert len(load("npz:mine.npz", root=tmp_path)) == 3, "the working folder comes first"
    with pytest.raises(FileNotFoundError, match=r"^gone\.npz: no such file"):
        load("npz:gone.npz", root=tmp_path)


def test_solid_shapes_in_npz(tmp_path):
    path = tmp_path / "shapes.npz"
    grids = np.ones((4, 9, 9, 9), np.uint8)
    np.savez(path, x=grids, y=[0, 1, 0, 1], names=["box", "case"], wnids=["n1", "n2"])
    data = load(f"npz:{path}")
    assert data.sample(0).shape == (1024, 3)
    assert (data.classes, data.names) == (("n1", "n2"), ("box", "case"))
    np.savez(path, x=grids, y=[0, 1, 0])
    with pytest.raises(ValueError, match="4 samples but 3 labels"):
        load(f"npz:{path}")


def test_npz(tmp_path):
    path = tmp_path / "mine.npz"
    x = np.random.default_rng(0).integers(0, 256, (6, 9, 8, 3), dtype=np.uint8)
    np.savez(path, x_test=x, y_test=np.array([0, 1, 2, 2, 1, 0]), names=np.array(["a", "b", "c"]))
    data = load(f"npz:{path}")
    assert data.classes == ("a", "b", "c")
    assert (data.batch([4]).numpy()[0] == x[4].transpose(2, 0, 1)).all()
    with pytest.raises(ValueError, match=r"mine\.npz: expected arrays x and y"):
        load(f"npz:{path}", "train")
    np.savez(path, x=x[..., 0], y=np.zeros(6, int))
    assert load(f"npz:{path}").batch([0], Frame(8)).shape == (1, 3, 8, 8)
    files = [official.jpeg_bytes(n) for n in range(3)]
    offsets = np.cumsum([0, *map(len, files)])
    buffer = np.frombuffer(b"".join(files), np.uint8)
    np.savez(path, buf=buffer, offsets=offsets, y=[0, 1, 1], wnids=["n1", "n2"], names=["x", "y"])
    encoded = load(f"npz:{path}")
    assert encoded.classes == ("n1", "n2")
    assert encoded.names == ("x", "y")
    assert encoded.sample(2).shape == (3, 40, 50)
    np.savez(path, buf=buffer[:-50], offsets=offsets, y=[0, 1, 1])
    with pytest.raises(ValueError, match="offsets must rise"):
        load(f"npz:{path}")
    np.savez(path, x=np.array([object()]), y=[0])
    with pytest.raises(ValueError, match="not a readable npz file without pickles"):
        load(f"npz:{path}")
    path.write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="not a readable npz"):
        load(f"npz:{path}")
    with pytest.raises(FileNotFoundError, match=r"gone\.npz: no such file"):
        load(f"npz:{tmp_path / 'gone.npz'}")
    np.savez(path, x=np.zeros((2, 16, 3)), y=[0, 1])
    assert load(f"npz:{path}").batch([0, 1]).shape == (2, 16, 3)


def test_folder(tmp_path):
    official.save_jpeg(tmp_path / "cats" / "a.jpg")
    official.save_jpeg(tmp_path / "dogs" / "deep" / "b.JPEG")
    (tmp_path / "dogs" / "notes.txt").write_text("no picture")
    data = load(f"folder:{tmp_path}")
    assert data.classes == ("cats", "dogs")
    assert data.labels.tolist() == [0, 1]
    flat = load(f"folder:{tmp_path / 'cats'}")
    assert len(flat) == 1
    (tmp_path / "cats" / "a.jpg").write_bytes(b"no jpeg")
    with pytest.raises(ValueError, match=r"a\.jpg: not a readable image"):
        data.sample(0)
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder; folder:<path> opens your own"):
        load(f"folder:{tmp_path / 'nowhere'}")
    official.save_jpeg(tmp_path / "split" / "val" / "cats" / "a.jpg")
    official.save_jpeg(tmp_path / "split" / "val" / "cats" / "._a.jpg")
    assert load(f"folder:{tmp_path / 'split'}").classes == ("cats",)
    assert len(load(f"folder:{tmp_path / 'split'}")) == 1
    with pytest.raises(FileNotFoundError, match="split/train: no such folder, only val"):
        load(f"folder:{tmp_path / 'split'}", "train")


def test_sixteen_bits_and_transparency(tmp_path):
    deep = np.arange(16, dtype=np.uint16).reshape(4, 4) * 4096
    (tmp_path / "a").mkdir()
    Image.fromarray(deep).save(tmp_path / "a" / "deep.png")
    Image.fromarray(np.full((4, 4, 4), 200, np.uint8), "RGBA").save(tmp_path / "a" / "glass.png")
    data = load(f"folder:{tmp_path}")
    assert (data.sample(0)[0].numpy() == deep >> 8).all()
    assert data.sample(1).shape == (3, 4, 4)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.zeros((2, 1), int)}, "y must be whole numbers"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.array([0.5, 1])}, "y must be whole numbers"),
        ({"x": np.zeros((2, 4, 4, 4), np.uint8), "y": np.zeros(2, int)}, "1 or 3 channels"),
        ({"x": np.zeros((2, 9, 9, 5), np.uint8), "y": np.zeros(2, int)}, "1 or 3 channels"),
        ({"x": np.zeros((2, 4, 4)), "y": np.zeros(2, int)}, "images in uint8 or clouds"),
        ({"buf": np.zeros(9, np.uint8), "offsets": np.array([0, 3]), "y": np.zeros(2, int)}, "2 labels need 3 offsets"),
    ],
)
def test_odd_arrays_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(ValueError, match=rf"odd\.npz: .*{message}"):
        load(f"npz:{tmp_path / 'odd.npz'}")


def test_names_that_occur_twice_are_numbered_apart(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 4, 4), np.uint8), y=[0, 1, 2], names=["crane", "dog", "crane"])
    data = load(f"npz:{tmp_path / 'a.npz'}")
    assert data.classes == ("crane", "dog", "crane 2")
    assert data.compact().labels.tolist() == [0, 1, 2]


def test_a_damaged_image_in_an_npz_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", buf=np.zeros(9, np.uint8), offsets=[0, 4, 9], y=[0, 0])
    with pytest.raises(ValueError, match=r"a\.npz, image 1: not a readable image"):
        load(f"npz:{tmp_path / 'a.npz'}").sample(1)


def test_known_classes_are_found_under_other_spellings():
    def unknown(*classes, names=None):
        return ArrayImages(np.zeros((len(classes), 1, 2, 2), np.uint8), range(len(classes)), classes, names)

    assert without_known(unknown("n01443537", "n1", names=("goldfish, fish", "reel")), ("goldfish",)).classes == ("n1",)
    assert without_known(unknown("goldfish", "reel"), ("n01443537",), ("goldfish",)).classes == ("reel",)
    assert without_known(unknown("Dog", "sea lion", "x"), ("dog", "sea_lion")).classes == ("x",)
    assert without_known(unknown("aeroplane", "car", "knife"), ("airplane", "automobile")).classes == ("knife",)


def test_corruptions_are_for_corrupted_sets(tmp_path):
    with pytest.raises(ValueError, match="mnist is not a corrupted set; leave corruption out"):
        load("mnist", corruption="snow", severity=5, root=tmp_path)
    with pytest.raises(ValueError, match=r"cifar10-c has no corruption 'snw'\. Did you mean snow"):
        load("cifar10-c", corruption="snw", severity=5, root=tmp_path)


def test_noise_depends_on_its_number_only():
    noise = Noise(uniform=False)
    batch = noise.batch([3, 7], Frame(16))
    assert batch.shape == (2, 3, 16, 16)
    assert (noise.batch([7], Frame(16))[0] == batch[1]).all()
    large = torch.stack([noise.sample(n) for n in range(200)])
    assert large.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.005)
    assert large.std(dim=(0, 2, 3)).tolist() == pytest.approx([0.247, 0.2435, 0.2616], abs=0.005)
    uniform = load("uniform-noise").batch(range(50))
    assert 0 <= uniform.min() < uniform.max() <= 1
    assert {"noise", "uniform-noise", "solids", "mnist-clouds"} == set(GENERATED)


def test_frames_make_squares_of_anything():
    grey = torch.arange(28 * 28, dtype=torch.uint8).view(1, 1, 28, 28)
    assert Frame(28)(grey).shape == (1, 3, 28, 28)
    wide = torch.randint(0, 256, (2, 3, 40, 60), dtype=torch.uint8)
    assert Frame(32)(wide).shape == (2, 3, 32, 32)
    assert Frame(224, 256)(wide).shape == (2, 3, 224, 224)
    assert (Frame(40)(wide) == wide[:, :, :, 10:50]).all()
    ready = torch.randint(0, 256, (1, 3, 224, 224), dtype=torch.uint8)
    assert (Frame(224, 256)(ready) == ready).all(), "images of the final size are not resized again"
    cloud = torch.randn(2, 100, 3)
    assert Frame(32)(cloud) is cloud


def test_subsets_and_names():
    data = ArrayImages(np.arange(6, dtype=np.uint8)[:, None, None, None], [0, 1, 2, 2, 1, 0], ["a", "b", "c"])
    only = data.only(["c", "a"])
    assert only.labels.tolist() == [1, 0, 0, 1]
    assert only.batch([0, 1]).flatten().tolist() == [0, 2]
    assert data.without(["b"]).classes == ("a", "c")
    assert data.subset([1, 4]).compact().classes == ("b",)
    assert align(data, ("a", "b", "c")) is data
    assert align(data, ("x", "y"), ("B, thing", "C")).labels.tolist() == [0, 1, 1, 0]
    two_cranes = ArrayImages(np.zeros((3, 1, 2, 2), np.uint8), [0, 1, 2], ["n1", "n2", "n3"], ["crane", "dog", "crane"])
    assert align(two_cranes, ("crane", "dog")).labels.tolist() == [0, 1, 0]
    assert data.only(["c", "b"]).subset([1, 2]).numbers([0, 1]).tolist() == [2, 3]
    with pytest.raises(ValueError, match="Two classes are called 'a'"):
        ArrayImages(np.zeros((1, 1, 2, 2), np.uint8), [0], ["a", "a"])
    with pytest.raises(ValueError, match="have no name in common"):
        align(data, ("x", "y", "z"))
    with pytest.raises(ValueError, match="Labels must be 0 … 1"):
        ArrayImages(np.zeros((1, 1, 2, 2), np.uint8), [2], ["a", "b"])
    with pytest.raises(ValueError, match="1 samples but 2 labels"):
        ArrayImages(np.zeros((1, 1, 2, 2), np.uint8), [0, 0], ["a"])


def test_a_framed_set_reads_every_sample_once_if_it_fits():
    class Counting(ArrayImages.__mro__[1]):
        reads = 0

        def sample(self, index):
            self.reads += 1
            return torch.full((1, 4, 4), index, dtype=torch.uint8)

    data = Counting([0] * 5, ["a"])
    framed = Framed(data, Frame(4))
    first = framed.batch([3, 1, 3])
    assert first[:, 0, 0, 0].tolist() == [3, 1, 3]
    assert (framed.batch([1, 3]) == first[[1, 0]]).all()
    assert framed.sample(4)[0, 0, 0] == 4
    assert data.reads == 3
    unkept = Framed(data, Frame(4), limit=10)
    for _ in range(2):
        assert unkept.batch([2, 0])[:, 0, 0, 0].tolist() == [2, 0]
    assert unkept.kept is None
