"""Training of source models: SGD or AdamW with warm-up and linear decay, augmentation, distillation, growing images.

Everything random in an epoch comes from the seed and the epoch's number, and every epoch ends with a checkpoint: a run
that was killed goes on and ends with the very weights it would have had.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from owttt import storage
from owttt.data.dataset import Dataset, as_float
from owttt.models.source_model import SourceModel
from owttt.progress import track

KIND: Final = "training checkpoint"
_OPTIMIZER: Final = "optimizer."
OPTIMISERS: Final = ("sgd", "adamw")


@final
@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults are for CIFAR-sized images and networks."""

    optimiser: str = "sgd"
    epochs: int = 40
    batch_size: int = 128
    lr: float = 0.2
    weight_decay: float = 5e-4
    momentum: float = 0.9
    warmup: float = 0.15
    """Share of the steps over which the rate rises; afterwards it falls to 0 in a straight line."""
    distillation: float = 0.5
    """Weight of what a teacher says against the labels, where there is one."""
    label_smoothing: float = 0.1
    pad: int = 4
    """Pixels by which a crop may be off the middle."""
    flip: bool = True
    colour: float = 0.0
    """How far brightness, contrast and saturation are varied, 0 … 1; a network that has seen it holds on to shapes, and
    knows the unknown better."""
    small_until: float = 0.6
    """Share of the epochs on images of `small_size`, which cost less."""
    small_size: float = 0.75
    """Side of those images, as a share."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISERS:
            raise ValueError(f"optimiser must be one of {OPTIMISERS}, got {self.optimiser!r}.")
        limits = {
            "epochs": (1, math.inf),
            "batch_size": (2, math.inf),
            "lr": (1e-12, math.inf),
            "weight_decay": (0, math.inf),
            "momentum": (0, 0.9999),
            "warmup": (0, 0.9999),
            "label_smoothing": (0, 1),
            "distillation": (0, 1),
            "pad": (0, math.inf),
            "colour": (0, 1),
            "small_until": (0, 1),
            "small_size": (0.01, 1),
            "seed": (0, math.inf),
        }
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                upper = "" if math.isinf(most) else f" and at most {most:g}"
                raise ValueError(f"{name} must be at least {least:g}{upper}, got {getattr(self, name)}.")

    def rate(self, progress: float) -> float:
        """Return the learning rate at a share of the whole run."""
        rising = progress / self.warmup if self.warmup else 1.0
        return self.lr * min(rising, (1 - progress) / (1 - self.warmup), 1.0)

    def side(self, epoch: int, size: int) -> int:
        """Return the images' side in an epoch: a multiple of 4, so that strides of 2 divide it twice."""
        small = epoch < self.small_until * self.epochs
        return max(4, round(size * self.small_size / 4) * 4) if small else size


@final
@dataclass(frozen=True)
class Epoch:
    """What an epoch gave."""

    number: int
    loss: float
    accuracy: float
    """On the augmented training images, in percent."""
    seconds: float


def train(
    model: SourceModel,
    data: Dataset,
    recipe: Recipe,
    checkpoint: Path,
    *,
    teacher: nn.Module | None = None,
    what: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Iterator[Epoch]:
    """Train the model in place and yield after every epoch; goes on from `checkpoint` if that is there.

    A `teacher` of the same classes sees the same images, and the model learns from its answers too.

    `data` gives images of the model's size, e.g. `Framed(dataset, model.preprocessing.frame)`. A checkpoint of another
    recipe, of other labels, or with another `what` (anything else that decides the result) is refused.
    """
    if len(data) < recipe.batch_size:
        raise ValueError(f"{len(data)} training images are less than one batch of {recipe.batch_size}; lower it.")
    optimizer = _optimizer(model, recipe)
    labels = storage.digest([("labels", data.labels)])
    settings = {**asdict(recipe), **(what or {}), "labels": labels, "classes": list(model.classes)}
    history = _resume(model, optimizer, checkpoint, settings) if checkpoint.exists() else []
    yield from history
    for number in range(len(history), recipe.epochs):
        history.append(_epoch(model, optimizer, data, recipe, number, teacher, progress))
        _save(model, optimizer, checkpoint, settings, history)
        yield history[-1]
    model.eval()


def varied(samples: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Return images or clouds as training shows them."""
    if samples.dim() == 3:
        return deform(samples, generator)
    images = augment(samples, recipe, generator)
    return recolour(images, recipe.colour, generator) if recipe.colour else images


def augment(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Return images flipped and shifted at random, each in a way of its own; the border is mirrored."""
    count, _, height, width = images.shape
    pad = min(recipe.pad, height - 1, width - 1)
    padded = F.pad(images.float(), (pad,) * 4, mode="reflect").to(images.dtype)
    top, left = (torch.randint(0, 2 * pad + 1, (count,), generator=generator) for _ in range(2))
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    if recipe.flip:
        flipped = torch.rand(count, generator=generator) < 0.5
        columns = torch.where(flipped[:, None], columns.flip(1), columns)
    samples = torch.arange(count)[:, None, None]
    return padded.permute(0, 2, 3, 1)[samples, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def deform(clouds: Tensor, generator: torch.Generator) -> Tensor:
    """Return clouds stretched along each axis by U(2/3, 3/2), as DGCNN's are; its shifts a model would undo."""
    low, high = 2 / 3, 3 / 2
    return clouds * (low + (high - low) * torch.rand(len(clouds), 1, 3, generator=generator))


def recolour(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Return images in 0 … 1 with brightness, contrast and saturation of their own, some of them grey.

    The factors are uniform in 1 ± 0.5, ± 0.7 and ± 1 times the strength, as in contrastive learning (SimCLR, Chen et
    al., 2020); a share of 0.15 times the strength becomes grey.
    """
    x = as_float(images)

    def factor(spread: float) -> Tensor:
        return 1 + strength * spread * (2 * torch.rand(len(x), 1, 1, 1, generator=generator) - 1)

    x = x * factor(0.5)
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    x = mean + (x - mean) * factor(0.7)
    grey = x.mean(dim=1, keepdim=True)
    colourless = torch.rand(len(x), 1, 1, 1, generator=generator) < 0.15 * strength
    x = grey + (x - grey) * torch.where(colourless, 0.0, factor(1.0))
    return x.clamp(0, 1)


def _epoch(
    model: SourceModel,
    optimizer: torch.optim.Optimizer,
    data: Dataset,
    recipe: Recipe,
    number: int,
    teacher: nn.Module | None,
    progress: bool,
) -> Epoch:
    start = time.perf_counter()
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + number)
    torch.manual_seed(recipe.seed * 1_000_003 + number)
    order = torch.randperm(len(data), generator=generator)
    steps = len(data) // recipe.batch_size
    model.train()
    device = next(model.parameters()).device
    loss_sum = torch.zeros((), device=device)
    right = torch.zeros((), device=device)
    for step in track(range(steps), f"epoch {number + 1} of {recipe.epochs}", show=progress):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate((number * steps + step + 0.5) / (recipe.epochs * steps))
        indices = order[step * recipe.batch_size : (step + 1) * recipe.batch_size]
        images = varied(data.batch(indices), recipe, generator)
        labels = data.labels[indices].to(device)
        logits = model(_shrunk(images, recipe.side(number, images.shape[-1])).to(device))
        loss = F.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing)
        if teacher is not None:
            loss = torch.lerp(loss, distillation(logits, teacher, images.to(device)), recipe.distillation)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        loss_sum += loss.detach()
        right += (logits.detach().argmax(1) == labels).sum()
    seen = steps * recipe.batch_size
    return Epoch(
        number + 1,
        round(float(loss_sum) / steps, 4),
        round(100 * float(right) / seen, 2),
        round(time.perf_counter() - start, 1),
    )


def distillation(logits: Tensor, teacher: nn.Module, images: Tensor) -> Tensor:
    """Return the cross entropy of a model's answers with its teacher's (Hinton et al., 2015), at temperature 1."""
    with torch.no_grad():
        answers = teacher(images).softmax(dim=1)
    return F.cross_entropy(logits, answers)


def _shrunk(images: Tensor, side: int) -> Tensor:
    if images.dim() != 4 or side == images.shape[-1]:
        return images
    return F.interpolate(images, (side, side), mode="bilinear", antialias=True, align_corners=False)


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the optimiser; weights decay, biases and normalisation do not."""
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    free = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": free, "weight_decay": 0.0}]
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr, betas=(recipe.momentum, 0.99))
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.momentum > 0)


def _save(
    model: nn.Module, optimizer: torch.optim.Optimizer, path: Path, settings: dict[str, Any], history: list[Epoch]
) -> None:
    tensors = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        for part, value in optimizer.state[parameter].items():
            if isinstance(value, Tensor):
                tensors[f"{_OPTIMIZER}{part}.{name}"] = value
    description = {"kind": KIND, "settings": settings, "history": [asdict(epoch) for epoch in history]}
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write(path, tensors, description)


def _resume(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path, settings: dict[str, Any]) -> list[Epoch]:
    tensors, description = storage.read(path, KIND)
    theirs = description["settings"]
    differing = sorted(name for name in settings.keys() | theirs.keys() if theirs.get(name) != settings.get(name))
    if differing:
        raise ValueError(
            f"{path} belongs to a run with other settings ({', '.join(differing)}); delete it, or choose another "
            "folder, or train with the settings it was begun with."
        )
    kept = {name: tensors.pop(name) for name in list(tensors) if name.startswith(_OPTIMIZER)}
    model.load_state_dict(tensors)
    parameters = dict(model.named_parameters())
    for key, value in kept.items():
        part, _, name = key.removeprefix(_OPTIMIZER).partition(".")
        home = value.device if part == "step" else parameters[name].device
        optimizer.state[parameters[name]][part] = value.to(home)
    return [Epoch(**epoch) for epoch in description["history"]]
