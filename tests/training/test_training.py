"""Training learns, is deterministic, and goes on after a kill as if nothing had happened."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from owttt import SourceStats, models
from owttt._utils import tensors as tensor_files
from owttt._utils.files import read_json
from owttt.cli import main
from owttt.cli import train as train_command
from owttt.data.corruptions.clouds import CLOUD_CORRUPTIONS
from owttt.data.dataset import ArrayImages
from owttt.data.modalities import as_float
from owttt.data.modalities.augmentation import recolored, shifted, stretched
from owttt.network.features import locate_features
from owttt.training import Job, Recipe, accuracy, batches, train, train_source
from owttt.training.card import command
from owttt.training.loop import EARLIER, distillation
from owttt.training.source import average, make_model, scale_head
from tests.pictures import colored, dataset, model, save_npz

RECIPE = Recipe(epochs=3, batch_size=16, lr=0.1, pad=2, augmix=False, contrastive=0.0, color=0.0, label_smoothing=0.1)


def test_it_learns(tmp_path):
    made = model()
    history = list(train(made, dataset(), replace(RECIPE, epochs=6), tmp_path / "c", progress=False))
    assert [epoch.number for epoch in history] == [1, 2, 3, 4, 5, 6]
    assert history[-1].loss < history[0].loss
    assert accuracy(made, batches(dataset(30, 1))) > 90


@pytest.mark.parametrize(
    "recipe",
    [
        RECIPE,
        replace(RECIPE, optimizer="adamw", lr=1e-3, color=0.5),
        replace(RECIPE, augmix=True, contrastive=0.3, label_smoothing=0.0),
        replace(RECIPE, ema=0.9, views=2),
        replace(RECIPE, logit_norm=0.04),
    ],
)
def test_a_run_cut_after_an_epoch_ends_with_the_same_weights(tmp_path, recipe):
    whole, cut = model(), model()
    list(train(whole, dataset(), recipe, tmp_path / "whole", progress=False))
    for epoch in train(cut, dataset(), recipe, tmp_path / "cut", progress=False):
        if epoch.number == 1:
            break
    resumed = model(seed=9)
    history = list(train(resumed, dataset(), recipe, tmp_path / "cut", progress=False))
    assert [epoch.number for epoch in history] == [1, 2, 3]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_the_average_of_the_weights_is_kept(tmp_path, monkeypatch):
    """w̄ ← d·w̄ + (1 − d)·w after every step, statistics too, from the first step's weights on."""
    seen = []
    update = AveragedModel.update_parameters

    def watched(self, made):
        seen.append({name: value.clone() for name, value in made.state_dict().items()})
        update(self, made)

    monkeypatch.setattr(AveragedModel, "update_parameters", watched)
    made = model()
    list(train(made, dataset(), replace(RECIPE, ema=0.8, epochs=2), tmp_path / "c", progress=False))
    assert len(seen) == 2 * (len(dataset()) // 16)
    for name, value in made.state_dict().items():
        if not value.is_floating_point():
            continue
        expected = seen[0][name]
        for later in seen[1:]:
            expected = 0.8 * expected + 0.2 * later[name]
        torch.testing.assert_close(value, expected, msg=name)


def test_a_head_is_scaled_to_the_length_that_the_loss_gave_its_logits():
    made = model().eval()
    images = dataset(24)
    with torch.no_grad():
        before = made(as_float(images.batch(range(24))))
        scale_head(made, images, 25.0)
        after = made(as_float(images.batch(range(24))))
    assert float(after.norm(dim=1).mean()) == pytest.approx(25)
    torch.testing.assert_close(after / after.norm(), before / before.norm())


def test_two_views_are_of_the_same_images(tmp_path, monkeypatch):
    batches_seen = []
    data = dataset()
    plain = type(data).batch

    def watched(self, indices, frame=None):
        batches_seen.append(torch.as_tensor(indices).tolist())
        return plain(self, indices, frame)

    monkeypatch.setattr(type(data), "batch", watched)
    history = list(train(model(), data, replace(RECIPE, views=2, epochs=1), tmp_path / "c", progress=False))
    steps = [batch for batch in batches_seen if len(batch) == 32]
    assert len(steps) == len(data) // 16
    assert all(batch[:16] == batch[16:] for batch in steps)
    assert history[0].accuracy <= 100


def test_a_checkpoint_from_before_an_option_goes_on(tmp_path):
    next(iter(train(model(), dataset(), RECIPE, tmp_path / "c", progress=False)))
    tensors, description = tensor_files.read(tmp_path / "c", "training checkpoint")
    for name in ("views", "ema", "logit_norm"):
        del description["settings"][name]
    tensor_files.write(tmp_path / "c", tensors, description)
    assert len(list(train(model(), dataset(), RECIPE, tmp_path / "c", progress=False))) == 3


def test_a_card_has_the_command_that_makes_the_model_again():
    for name in ("cifar10-vit", "modelnet10-dgcnn"):
        card = models.load(name).card
        words = command(card).split()[2:]
        parser = argparse.ArgumentParser()
        train_command.add(parser)
        chosen = parser.parse_args(words)
        recipe = {**EARLIER, **card["recipe"]}
        assert {part: getattr(chosen, part) for part in recipe} == recipe
        assert (chosen.data, chosen.network, chosen.width) == (card["trained_on"], card["network"], card["width"])


def test_the_contrastive_term_makes_classes_tight(tmp_path):
    def spread(weight):
        made = model()
        list(
            train(
                made, dataset(), replace(RECIPE, epochs=4, contrastive=weight), tmp_path / f"{weight}", progress=False
            )
        )
        source = SourceStats.fit(made, batches(dataset()), 3, progress=False)
        extractor = locate_features(made, next(batches(dataset()))[0][:2], 3)
        with torch.no_grad():
            z = torch.nn.functional.normalize(extractor(next(batches(dataset()))[0]).features, dim=1)
        return float((1 - (z * source.prototypes[dataset().labels]).sum(dim=1)).mean())

    assert spread(1.0) < 0.7 * spread(0.0)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    list(train(model(), dataset(), replace(RECIPE, epochs=1), tmp_path / "c", progress=False))
    with pytest.raises(ValueError, match=r"other settings \(epochs, lr\)"):
        list(train(model(), dataset(), replace(RECIPE, epochs=2, lr=0.3), tmp_path / "c", progress=False))
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-9])
    with pytest.raises(ValueError, match="truncated or damaged"):
        list(train(model(), dataset(), replace(RECIPE, epochs=1), tmp_path / "c", progress=False))


def test_too_few_images(tmp_path):
    with pytest.raises(ValueError, match="10 training images are less than one batch of 16"):
        list(train(model(), dataset(10), RECIPE, tmp_path / "c", progress=False))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
        ({"lr": 0.0}, "lr must be at least"),
        ({"warmup": 1.0}, "warmup must be at least 0 and at most 0.9999, got 1.0"),
        ({"color": 2.0}, "color must be at least 0 and at most 1"),
        ({"pad": -1}, "pad must be at least 0"),
        ({"label_smoothing": 2.0}, "label_smoothing must be at least 0 and at most 1"),
        ({"lr": float("nan")}, "lr must be at least"),
    ],
)
def test_bad_recipes(wrong, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**wrong)


def job(tmp_path, **changes):
    save_npz(tmp_path / "mine.npz")
    values = {"network": "resnet20", "width": 4, "size": 16, "recipe": replace(RECIPE, epochs=1), "test_number": 3}
    return Job(f"npz:{tmp_path / 'mine.npz'}", **{**values, **changes})


@pytest.mark.parametrize("change", [{"size": 32}, {"network": "resnet26"}, {"width": 8}])
def test_a_checkpoint_of_another_job_is_refused(tmp_path, change):
    begun = job(tmp_path)
    made = make_model(begun, dataset())
    list(train(made, dataset(), begun.recipe, tmp_path / "checkpoint.safetensors", what=begun.identity(made)))
    with pytest.raises(ValueError, match="belongs to a run with other settings"):
        train_source(job(tmp_path, **change), tmp_path, tell=lambda _: None)


def test_what_is_wrong_with_a_job_is_found_before_training(tmp_path):
    def never(_):
        raise AssertionError("it began to train")

    for change, message in (
        ({"test": "cifar11"}, "No data set 'cifar11'"),
        ({"severity": 9}, "severity must be 1 to 5"),
        ({"test_number": 31}, "needs 31 samples of known, which has 30"),
        ({"network": "dgcnn"}, "is of images, which dgcnn does not take; choose resnet11, resnet18, "),
    ):
        with pytest.raises(ValueError, match=message):
            train_source(job(tmp_path, **change), tmp_path / "out", tell=never)
    with pytest.raises(ValueError, match="size must be at least 4 and width at least 1"):
        job(tmp_path, width=0)
    with pytest.raises(ValueError, match="points must be at least 2, got 0"):
        job(tmp_path, points=0)
    x, y = colored(96)
    np.savez(tmp_path / "plain.npz", x=x, y=y)
    plain = replace(job(tmp_path), data=f"npz:{tmp_path / 'plain.npz'}")
    with pytest.raises(ValueError, match="has no test images of its own; name some with --test"):
        train_source(plain, tmp_path / "out", tell=never)


def test_a_finished_model_is_not_overwritten(tmp_path):
    first = train_source(job(tmp_path), tmp_path / "out", tell=lambda _: None)
    written = (tmp_path / "out" / "model.safetensors").read_bytes()
    told = []
    again = train_source(job(tmp_path), tmp_path / "out", tell=told.append)
    assert "holds a finished model; choose another folder" in told[0]
    assert again.card == first.card
    other = replace(job(tmp_path), recipe=replace(job(tmp_path).recipe, lr=0.5))
    with pytest.raises(ValueError, match=r"choose another folder.*trained differently: lr: .*, asked for 0\.5"):
        train_source(other, tmp_path / "out", tell=told.append)
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == written


def test_the_schedule():
    recipe = Recipe(warmup=0.2, lr=1.0, epochs=10, small_until=0.6, small_size=0.75)
    assert [round(recipe.rate(t), 6) for t in (0, 0.1, 0.2, 0.6, 1)] == [0, 0.5, 1, 0.5, 0]
    assert [recipe.side(epoch, 32) for epoch in (0, 5, 6, 9)] == [24, 24, 32, 32]
    assert Recipe(warmup=0.0, lr=1.0).rate(0.0) == 1.0


def test_augmentation_shifts_mirrors_and_flips_as_a_loop_would():
    images = torch.randint(0, 256, (20, 3, 9, 9), dtype=torch.uint8)
    made = shifted(images, RECIPE.pad, RECIPE.flip, torch.Generator().manual_seed(0))
    assert made.dtype == torch.uint8
    padded = torch.nn.functional.pad(images.float(), (2, 2, 2, 2), mode="reflect").to(torch.uint8)
    kinds = set()
    for image, result in zip(padded, made, strict=True):
        found = [
            (top, left, flip)
            for top in range(5)
            for left in range(5)
            for flip, crop in enumerate((image[:, top : top + 9, left : left + 9],) * 2)
            if torch.equal(result, crop.flip(2) if flip else crop)
        ]
        assert len(found) == 1
        kinds.add(found[0])
    assert len(kinds) > 10
    assert {flip for *_, flip in kinds} == {0, 1}
    plain = shifted(images, 0, False, torch.Generator().manual_seed(0))
    assert torch.equal(plain, images)


def test_colors_are_varied_as_a_loop_would():
    images = torch.randint(0, 256, (400, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    made = recolored(images, 0.8, torch.Generator().manual_seed(0))
    draws = torch.Generator().manual_seed(0)
    bright, contrast, grey, saturation = (torch.rand(400, 1, 1, 1, generator=draws).flatten() for _ in range(4))
    for number, image in enumerate(images):
        x = image.double() / 255 * (1 + 0.8 * 0.5 * (2 * bright[number] - 1))
        x = x.mean() + (x - x.mean()) * (1 + 0.8 * 0.7 * (2 * contrast[number] - 1))
        factor = 0.0 if grey[number] < 0.15 * 0.8 else 1 + 0.8 * (2 * saturation[number] - 1)
        for row in range(4):
            for column in range(4):
                pixel = x[:, row, column]
                expected = (pixel.mean() + (pixel - pixel.mean()) * factor).clamp(0, 1)
                assert torch.allclose(made[number, :, row, column].double(), expected, atol=1e-5)
    colorless = (made.amax(1) - made.amin(1)).amax(dim=(1, 2)) < 1e-6
    assert 0.06 < colorless.float().mean() < 0.2
    assert torch.allclose(recolored(images, 0.0, draws), images.float() / 255)
    assert torch.equal(recolored(images.float() / 255, 0.8, torch.Generator().manual_seed(0)), made)


def test_training_goes_on_from_a_model(tmp_path):
    quiet = {"tell": lambda _: None}
    train_source(job(tmp_path), tmp_path / "first", **quiet)
    gentle = replace(RECIPE, epochs=1, lr=1e-6, color=0.5)
    more = train_source(job(tmp_path, start=str(tmp_path / "first"), recipe=gentle), tmp_path / "second", **quiet)
    x = dataset(5).batch(range(5))
    before = models.load(tmp_path / "first").network.state_dict()
    for name, value in more.network.state_dict().items():
        if "running" not in name and "num_batches" not in name:
            assert torch.allclose(value, before[name], atol=1e-3), "the weights it began with"
    assert more(x).shape == (5, 3)
    assert more.card["start"]["name"] == "first"
    assert more.card["start"]["recipe"]["lr"] == RECIPE.lr
    page = (tmp_path / "second" / "README.md").read_text()
    assert "It went on from `first`, trained for 1 epochs" in page
    commands = re.findall("owttt train .*", page)
    assert [line.split(" --out ")[1] for line in commands] == ["first", "mymodel"]
    assert "--start first" in commands[1]
    assert "--start" not in commands[0]
    assert str(tmp_path) not in (tmp_path / "second" / "card.json").read_text()
    for change, message in (({"width": 8}, "is another network"), ({"start": "gone"}, "No model 'gone'")):
        with pytest.raises(ValueError, match=message):
            train_source(job(tmp_path, **{"start": str(tmp_path / "first"), **change}), tmp_path / "third", **quiet)


def test_a_model_learns_from_its_teacher(tmp_path):
    """With a weight of 1 the labels do not matter: it learns the teacher's mistakes."""
    teacher = model(3)
    list(train(teacher, dataset(), replace(RECIPE, epochs=6), tmp_path / "t", progress=False))
    mistaken = ArrayImages(colored(96)[0], (colored(96)[1] + 1) % 3, ["red", "green", "blue"])
    learner = model()
    recipe = replace(RECIPE, epochs=6, distillation=1.0)
    list(train(learner, mistaken, recipe, tmp_path / "l", teacher=teacher, progress=False))
    assert accuracy(learner, batches(dataset(30, 1))) > 80
    logits, images = torch.randn(4, 3), dataset(4).batch(range(4))
    answers = teacher(images).softmax(dim=1)
    literal = -sum(answers[i, k] * logits[i].log_softmax(0)[k] for i in range(4) for k in range(3)) / 4
    assert torch.allclose(distillation(logits, teacher, images), literal, atol=1e-5)
    with pytest.raises(ValueError, match="knows other classes than the data has; --teacher takes a model of the same"):
        train_source(job(tmp_path, teacher="cifar10-resnet26"), tmp_path / "o", tell=lambda _: None)


def test_clouds_are_stretched():
    clouds = torch.randn(50, 20, 3)
    made = stretched(clouds, torch.Generator().manual_seed(0))
    for before, after in zip(clouds, made, strict=True):
        for axis in range(3):
            scale = (after[1, axis] - after[0, axis]) / (before[1, axis] - before[0, axis])
            assert 2 / 3 - 1e-3 <= scale <= 3 / 2 + 1e-3
            assert after[0, axis] == pytest.approx(float(scale * before[0, axis]), abs=1e-3)


def test_a_network_of_clouds_from_voxels_to_a_folder(tmp_path):
    random = np.random.default_rng(0)
    grids = np.zeros((60, 12, 12, 12), np.uint8)
    for number in range(60):
        side = 3 + random.integers(0, 3)
        grids[number, 2 : 2 + side, 2 : 2 + side, 2 : 2 + (side if number % 2 else 9)] = 1
    labels = np.arange(60) % 2
    np.savez(
        tmp_path / "shapes.npz",
        x_train=grids[:40], y_train=labels[:40], x_test=grids[40:], y_test=labels[40:], names=["rod", "box"],
    )  # fmt: skip
    recipe = Recipe(epochs=15, batch_size=8, lr=3e-3, optimizer="adamw", label_smoothing=0.0)
    task = Job(f"npz:{tmp_path / 'shapes.npz'}", "dgcnn", width=8, points=32, recipe=recipe, test_number=4)
    with pytest.raises(ValueError, match="is of clouds, which resnet26 does not take; choose dgcnn"):
        train_source(replace(task, network="resnet26"), tmp_path / "out")
    made = train_source(task, tmp_path / "out", tell=lambda _: None)
    assert made.card["clean"] > 80
    assert list(made.card["corrupted"]) == list(CLOUD_CORRUPTIONS)
    page = (tmp_path / "out" / "README.md").read_text()
    assert page.startswith("# dgcnn, 2 classes, 32 points")
    assert "image" not in page
    words = [
        "run",
        "--model",
        str(tmp_path / "out"),
        "--known",
        f"npz:{tmp_path / 'shapes.npz'}",
        "--corruption",
        "lidar",
    ]
    words += ["--unknown", "noise", "--number", "10", "--batch-size", "5", "--out", str(tmp_path / "result.json")]
    assert main(words) == 0
    assert json.loads((tmp_path / "result.json").read_text())["data"]["samples"] == 20


def test_the_average_of_two_models():
    one, two = model(0), model(1)
    before = {name: value.clone() for name, value in one.state_dict().items()}
    average(one, two, 0.25, dataset())
    for name, value in one.state_dict().items():
        if "running" not in name and "num_batches" not in name:
            assert torch.allclose(value, 0.75 * before[name] + 0.25 * two.state_dict()[name], atol=1e-6)
    assert not one.training
    stem = one.network.conv(one.prepare(dataset().batch(range(96))))
    assert torch.allclose(one.network.bn.running_mean, stem.mean(dim=(0, 2, 3)), atol=1e-4)
    assert one.network.bn.momentum == 0.1
    with pytest.raises(ValueError, match="average is the share of a start's weights"):
        Job("cifar10", average=0.5)


def test_from_data_to_a_model_folder(tmp_path):
    save_npz(tmp_path / "mine.npz")
    task = Job(f"npz:{tmp_path / 'mine.npz'}", "resnet20", width=4, size=16, recipe=RECIPE, test_number=6)
    told = []
    made = train_source(task, tmp_path / "out", tell=told.append)
    assert len(told) == 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md", "card.json", "model.safetensors", "source.safetensors",
    ]  # fmt: skip
    loaded = models.load(tmp_path / "out")
    x = dataset(5).batch(range(5))
    assert torch.equal(loaded(x), made(x))
    assert torch.equal(loaded(x.float() / 255), made(x))
    assert loaded.classes == ("red", "green", "blue")
    card = read_json(tmp_path / "out" / "card.json")
    assert card == loaded.card
    assert card["trained_on"] == "npz:mine.npz", "no folder of the machine it was trained on"
    assert card["test_images"] == 30
    assert card["corrupted_images"] == 6
    assert len(card["corrupted"]) == 15
    assert card["clean"] == accuracy(loaded, batches(dataset(30, 1)))
    fitted = SourceStats.fit(made, batches(dataset()), 3)
    assert torch.allclose(loaded.source.class_means, fitted.class_means, atol=1e-5)
    page = (tmp_path / "out" / "README.md").read_text()
    assert f"| clean (30 images) | {card['clean']:.2f} |" in page
    assert str(tmp_path) not in page


def test_a_killed_command_resumes(tmp_path):
    save_npz(tmp_path / "mine.npz")
    recipe = ["--epochs", "15", "--batch-size", "16", "--lr", "0.05"]
    command = [
        sys.executable, "-m", "owttt", "train", "--data", f"npz:{tmp_path / 'mine.npz'}", "--network", "resnet20",
        "--width", "4", "--size", "16", "--test-number", "3", "--out", str(tmp_path / "out"), *recipe,
    ]  # fmt: skip
    checkpoint = tmp_path / "out" / "checkpoint.safetensors"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, description = tensor_files.read(checkpoint, "training checkpoint")
    assert 1 <= len(description["history"]) < 15
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "epoch  15 of 15" in shown
    task = Job(f"npz:{tmp_path / 'mine.npz'}", "resnet20", width=4, size=16, test_number=3,
              recipe=Recipe(epochs=15, batch_size=16, lr=0.05))  # fmt: skip
    straight = train_source(task, tmp_path / "straight", tell=lambda _: None)
    resumed = models.load(tmp_path / "out")
    for name, tensor in straight.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
