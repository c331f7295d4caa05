"""From a data set to a source model on disk: train, measure, fit statistics, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from owttt import models
from owttt._utils.environment import environment
from owttt._utils.files import write_bytes, write_json
from owttt._utils.progress import track
from owttt.data import registry
from owttt.data.catalog import IMAGENET_MEAN, IMAGENET_STD, catalog
from owttt.data.dataset import Dataset, Framed
from owttt.data.modalities import CLOUDS, as_float
from owttt.data.naming import DataName
from owttt.data.streams.spec import StreamSpec
from owttt.data.streams.stream import Stream
from owttt.models.networks import NETWORKS, build, modality_of_network
from owttt.models.package import CARD, SOURCE, WEIGHTS, read_model, write_model
from owttt.models.source_model import Preprocessing, SourceModel
from owttt.source import ClassCovariance, SourceStats, fingerprint
from owttt.training.card import SIZE, markdown
from owttt.training.loop import Epoch, Recipe, train

CHECKPOINT: Final = "checkpoint.safetensors"
AVERAGE_IMAGES: Final = 10_000
"""From how many images BatchNorm's statistics are taken anew, and the head is scaled."""


@final
@dataclass(frozen=True)
class Job:
    """What to train on what; the test set is measured under `severity`, `test_number` images a corruption.

    `start` is a model to go on from, of the same network and classes; None begins with random weights. `average` is the
    share that its weights have in the result: in between both, a network often keeps what either is good at. `teacher`
    is a model of the same classes to learn from. `class_covariance` is the form of the classes' covariances in
    the source statistics: "diagonal" keeps those of many classes small.
    """

    data: str
    network: str = "resnet11"
    test: str | None = None
    width: int | None = None
    size: int = SIZE
    points: int = 256
    recipe: Recipe = field(default_factory=Recipe)
    severity: int = 5
    test_number: int | None = None
    start: str | None = None
    teacher: str | None = None
    average: float = 0.0
    class_covariance: ClassCovariance = "auto"

    def __post_init__(self) -> None:
        if not 0 <= self.average < 1 or (self.average and self.start is None):
            raise ValueError(f"average is the share of a start's weights, from 0 up to 1, got {self.average}.")
        if self.size < 4 or (self.width is not None and self.width < 1):
            raise ValueError(f"size must be at least 4 and width at least 1, got {self.size} and {self.width}.")
        if self.points < 2:
            raise ValueError(f"points must be at least 2, got {self.points}.")

    def identity(self, model: SourceModel) -> dict[str, Any]:
        """Return what, besides the recipe, decides the weights."""
        return {
            "data": DataName.parse(self.data).portable,
            "network": self.network,
            "width": self.width,
            "preprocessing": json.loads(json.dumps(model.preprocessing.describe())),
        } | self._others(model)

    def _others(self, model: SourceModel) -> dict[str, str]:
        others = {"start": fingerprint(model)} if self.start else {}
        return others | ({"teacher": fingerprint(models.load(self.teacher))} if self.teacher else {})


def train_source(job: Job, out: Path, *, root: Path | None = None, tell: Callable[[str], None] = print) -> SourceModel:
    """Train and write a model folder; a run that was interrupted goes on from its last epoch."""
    if (out / WEIGHTS).exists():
        return _finished(job, out, tell)
    data = registry.load(job.data, "train", root=root).compact()
    model = make_model(job, data)
    tests = streams_to_test(job, model, data, root)
    images = Framed(data, model.preprocessing.frame)
    history = []
    teacher = _teacher(job.teacher, model) if job.teacher else None
    for epoch in train(model, images, job.recipe, out / CHECKPOINT, teacher=teacher, what=job.identity(model)):
        tell(
            f"epoch {epoch.number:3} of {job.recipe.epochs}: loss {epoch.loss:.3f}, "
            f"{epoch.accuracy:.1f} % on augmented training images, {epoch.seconds:.0f} s"
        )
        history.append(epoch)
    if job.start and job.average:
        average(model, models.load(job.start), job.average, images)
    if job.recipe.logit_norm:
        scale_head(model, images, 1 / job.recipe.logit_norm)
    model.attach(SourceStats.fit(model, batches(images), len(model.classes), class_covariance=job.class_covariance))
    model.card = measure(model, job, history, tests)
    model.source.save(out / SOURCE)
    write_json(out / CARD, model.card)
    write_bytes(out / "README.md", markdown(model.card).encode())
    write_model(out, model, job.network, job.width)
    (out / CHECKPOINT).unlink(missing_ok=True)
    return model


def _finished(job: Job, out: Path, tell: Callable[[str], None]) -> SourceModel:
    """Return the model that is there, if it was trained like that."""
    model = read_model(out)
    there = {name: model.card[name] for name in ("trained_on", "network")} | model.card["recipe"]
    asked = {"trained_on": DataName.parse(job.data).portable, "network": job.network, **asdict(job.recipe)}
    different = [f"{name}: {there[name]!r}, asked for {asked[name]!r}" for name in there if there[name] != asked[name]]
    advice = f"{out} holds a finished model; choose another folder, or delete it to train again."
    if different:
        raise ValueError(f"{advice} It was trained differently: {'; '.join(different)}.")
    tell(advice)
    return model


def streams_to_test(job: Job, model: SourceModel, data: Dataset, root: Path | None) -> dict[str, Stream]:
    """Return the clean test set and each corruption of it; what is wrong with them is found before training."""
    test = registry.load(job.test or job.data, root=root)
    if len(test) == len(data) and all(torch.equal(test.sample(n), data.sample(n)) for n in (0, len(data) - 1)):
        if job.test:
            raise ValueError(f"{job.test} holds the very images of {job.data}; test images must be others.")
        raise ValueError(
            f"{job.data} has no test images of its own; name some with --test. (A folder may have train/ and test/, an "
            "npz file x_train, y_train, x_test and y_test.)"
        )
    modality, frame = test.modality, model.preprocessing.frame
    known = test if modality.corrupted_first else Framed(test, frame)
    whole = StreamSpec(known=job.test or job.data, severity=job.severity)
    parts = {name: replace(whole, corruptions=(name,), num_samples=job.test_number) for name in modality.common}
    specs = {"clean": whole} | parts
    return {
        name: Stream(spec, frame=frame, known=known, classes=model.classes, names=model.names)
        for name, spec in specs.items()
    }


def make_model(job: Job, data: Dataset) -> SourceModel:
    """Return the untrained model; its weights depend on the recipe's seed."""
    torch.manual_seed(job.recipe.seed)
    modality = data.modality
    if modality is not modality_of_network(job.network):
        fitting = sorted(name for name, network in NETWORKS.items() if network.modality is modality)
        raise ValueError(
            f"{job.data} is of {modality.name}, which {job.network} does not take; choose {', '.join(fitting)}."
        )
    network = build(job.network, len(data.classes), job.width)
    preprocessing = Preprocessing(points=job.points) if modality is CLOUDS else _image_preprocessing(job, network)
    model = SourceModel(network, preprocessing, data.classes, data.names)
    if job.start is not None:
        _begin_with(model, job.start)
    return model


def _image_preprocessing(job: Job, network: nn.Module) -> Preprocessing:
    """Return the colors of timm's network, or else those of the data."""
    settings: Mapping[str, Any] = getattr(network, "default_cfg", {})
    entry = catalog().get(job.data)
    mean = settings.get("mean", entry.mean if entry else IMAGENET_MEAN)
    std = settings.get("std", entry.std if entry else IMAGENET_STD)
    return Preprocessing(job.size, None, tuple(mean), tuple(std))


def _teacher(name: str, model: SourceModel) -> SourceModel:
    teacher = models.load(name)
    if teacher.classes != model.classes:
        raise ValueError(f"{name} knows other classes than the data has; --teacher takes a model of the same ones.")
    return teacher


def _begin_with(model: SourceModel, start: str) -> None:
    """Give a model the weights of another, of the same network and classes."""
    other = models.load(start)
    theirs, ours = other.state_dict(), model.state_dict()
    if {name: value.shape for name, value in theirs.items()} != {name: value.shape for name, value in ours.items()}:
        raise ValueError(f"{start} is another network; --start takes a model of the very network that is trained.")
    if other.classes != model.classes:
        raise ValueError(f"{start} knows other classes than the data has; --start takes a model of the same ones.")
    model.load_state_dict(theirs)


def measure(model: SourceModel, job: Job, history: list[Epoch], tests: Mapping[str, Stream]) -> dict[str, Any]:
    """Return the model card: accuracy on the clean test set and under each common corruption, and how it was made."""
    percent = {name: accuracy(model, stream) for name, stream in track(list(tests.items()), "accuracy")}
    clean = percent.pop("clean")
    images = len(tests["clean"].plan)
    return {
        "network": job.network,
        "width": job.width,
        "parameters": sum(parameter.numel() for parameter in model.network.parameters()),
        "classes": len(model.classes),
        "size": model.preprocessing.size,
        "points": model.preprocessing.points,
        "trained_on": DataName.parse(job.data).portable,
        "terms": entry.license if (entry := catalog().get(job.data)) else None,
        "tested_on": DataName.parse(job.test or job.data).portable,
        "test_images": images,
        "corrupted_images": min(images, job.test_number or images),
        "clean": clean,
        "corrupted": percent,
        "corrupted_mean": round(sum(percent.values()) / len(percent), 2),
        "severity": job.severity,
        "teacher": Path(job.teacher).name if job.teacher else None,
        "start": _origin(job.start, job.average) if job.start else None,
        "class_covariance": job.class_covariance,
        "recipe": asdict(job.recipe),
        "history": [asdict(epoch) for epoch in history],
        "environment": environment(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _origin(start: str, share: float) -> dict[str, Any]:
    """Return what a card says of the model that training went on from."""
    card = models.load(start).card or {}
    return {
        "name": Path(start).name,
        "share": share,
        **{key: card.get(key) for key in ("clean", "corrupted_mean", "recipe", "start")},
    }


def average(model: SourceModel, start: SourceModel, share: float, images: Dataset) -> None:
    """Move a model's weights by a share towards those it started from (WiSE-FT, Wortsman et al., CVPR 2022), in place.

    BatchNorm's statistics belong to neither then, and are taken anew from some of the training images.
    """
    theirs = start.state_dict()
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            value.lerp_(theirs[name], share)
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    with torch.no_grad():
        for x, _ in batches(_some(images)):
            model(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def scale_head(model: SourceModel, images: Dataset, length: float) -> None:
    """Scale the last linear layer so that logits have a mean length, in place.

    A loss on logits of length 1 leaves their own length to chance, and with it the confidence.
    """
    with torch.inference_mode():
        logits = torch.cat([model(x) for x, _ in batches(_some(images))])
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(length / float(logits.norm(dim=1).mean()))


def _some(images: Dataset) -> Dataset:
    """Return some of the images, always the same ones."""
    return images.subset(torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:AVERAGE_IMAGES])


def accuracy(model: nn.Module, stream: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the percentage of labels that a classifier gives rightly."""
    model.eval()
    device = next(model.parameters()).device
    right = total = 0
    with torch.inference_mode():
        for x, y in stream:
            right += int((model(x.to(device)).argmax(dim=1).cpu() == y).sum())
            total += len(y)
    return round(100 * right / max(total, 1), 2)


def batches(data: Dataset, size: int = 250) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a data set as floats with labels, in order; images in 0 … 1."""
    for start in range(0, len(data), size):
        indices = torch.arange(start, min(start + size, len(data)))
        yield as_float(data.batch(indices)), data.labels[indices]
