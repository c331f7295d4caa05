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
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from owttt._utils import tensors as tensor_files
from owttt._utils.progress import track
from owttt.data.dataset import Dataset
from owttt.data.modalities import Variation, as_float
from owttt.functional import supervised_contrastive, unit_logits
from owttt.models.source_model import SourceModel
from owttt.network.features import FeatureExtractor, locate_features

KIND: Final = "training checkpoint"
_OPTIMIZER: Final = "optimizer."
_AVERAGE: Final = "average."
OPTIMIZERS: Final = ("sgd", "adamw")
TEMPERATURE: Final = 0.1
"""Of the contrastive loss, as published."""


@final
@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults are for small photographs and networks that are to meet the open world.

    optimizer        sgd or adamw
    epochs           passes over the training images
    batch_size       images per step
    lr               largest learning rate
    weight_decay     of weights; biases and normalization have none
    momentum         of SGD, or the first beta of AdamW
    warmup           share of the steps over which the rate rises; afterwards it falls to 0 in a straight line
    distillation     weight of what a teacher says against the labels, where there is one
    label_smoothing  0 keeps unknown samples easier to tell apart
    logit_norm       temperature of the loss on logits of length 1 (0.04): certain samples gain nothing from longer
                     features, and unknown ones stand out; 0 for the usual loss
    pad              pixels by which a crop may be off the middle
    flip             whether images are flipped at random
    augmix           whether images are mixed with chains of simple operations: it holds up better under corruptions
    contrastive      weight of the supervised contrastive loss on features: tight classes, the unknown stands out
    color            how far brightness, contrast and saturation are varied, 0 to 1
    views            how often each image is in a batch, varied anew: 2 gives the contrastive loss two looks at each
    ema              decay per step of a running average of the weights, which is what is kept (0.999); 0 for none
    small_until      share of the epochs on smaller images, which cost less
    small_size       side of those images, as a share
    seed             decides everything random
    """

    optimizer: str = "sgd"
    epochs: int = 40
    batch_size: int = 128
    lr: float = 0.15
    weight_decay: float = 5e-4
    momentum: float = 0.9
    warmup: float = 0.15
    distillation: float = 0.5
    label_smoothing: float = 0.0
    logit_norm: float = 0.0
    pad: int = 4
    flip: bool = True
    augmix: bool = True
    contrastive: float = 0.2
    color: float = 0.3
    views: int = 1
    ema: float = 0.0
    small_until: float = 0.6
    small_size: float = 0.75
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {OPTIMIZERS}, got {self.optimizer!r}.")
        limits = {
            "epochs": (1, math.inf),
            "batch_size": (2, math.inf),
            "lr": (1e-12, math.inf),
            "weight_decay": (0, math.inf),
            "momentum": (0, 0.9999),
            "warmup": (0, 0.9999),
            "label_smoothing": (0, 1),
            "logit_norm": (0, math.inf),
            "distillation": (0, 1),
            "pad": (0, math.inf),
            "color": (0, 1),
            "contrastive": (0, math.inf),
            "views": (1, 8),
            "ema": (0, 0.99999),
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

    @property
    def variation(self) -> Variation:
        """How samples are varied."""
        return Variation(self.pad, self.flip, self.augmix, self.color)

    def side(self, epoch: int, size: int) -> int:
        """Return the images' side in an epoch: a multiple of 4, so that strides of 2 divide it twice."""
        small = epoch < self.small_until * self.epochs
        return max(4, round(size * self.small_size / 4) * 4) if small else size


EARLIER: Final[Mapping[str, Any]] = {
    "optimizer": "sgd", "augmix": False, "contrastive": 0.0, "color": 0.0, "views": 1, "ema": 0.0, "logit_norm": 0.0,
}  # fmt: skip
"""What an option was before there was one: of cards and checkpoints that do not say."""


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
    averaged = _average(model, recipe)
    labels = tensor_files.digest([("labels", data.labels)])
    settings = {**asdict(recipe), **(what or {}), "labels": labels, "classes": list(model.classes)}
    history = _resume(model, optimizer, averaged, checkpoint, settings) if checkpoint.exists() else []
    yield from history
    extractor = _extractor(model, data)
    for number in range(len(history), recipe.epochs):
        history.append(_epoch(extractor, optimizer, averaged, data, recipe, number, teacher, progress))
        _save(model, optimizer, averaged, checkpoint, settings, history)
        yield history[-1]
    if averaged is not None:
        model.load_state_dict(averaged.module.state_dict())
    model.eval()


def _average(model: nn.Module, recipe: Recipe) -> AveragedModel | None:
    """Return the running average of weights and statistics: w̄ ← d·w̄ + (1 − d)·w after every step."""
    if not recipe.ema:
        return None
    average = get_ema_multi_avg_fn(recipe.ema)  # type: ignore[no-untyped-call]
    return AveragedModel(model, multi_avg_fn=average, use_buffers=True)


def _extractor(model: SourceModel, data: Dataset) -> FeatureExtractor:
    model.eval()
    device = next(model.parameters()).device
    return locate_features(model, as_float(data.batch([0, 1])).to(device), len(model.classes))


def _epoch(
    model: FeatureExtractor,
    optimizer: torch.optim.Optimizer,
    averaged: AveragedModel | None,
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
    modality = data.modality
    device = next(model.parameters()).device
    loss_sum = torch.zeros((), device=device)
    right = torch.zeros((), device=device)
    for step in track(range(steps), f"epoch {number + 1} of {recipe.epochs}", show=progress):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate((number * steps + step + 0.5) / (recipe.epochs * steps))
        indices = order[step * recipe.batch_size : (step + 1) * recipe.batch_size].repeat(recipe.views)
        images = modality.varied(data.batch(indices), recipe.variation, generator)
        labels = data.labels[indices].to(device)
        out = model(modality.resized(images, recipe.side(number, images.shape[-1])).to(device))
        logits = unit_logits(out.logits, recipe.logit_norm) if recipe.logit_norm else out.logits
        loss = F.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing)
        if recipe.contrastive:
            loss = loss + recipe.contrastive * supervised_contrastive(out.features, labels, TEMPERATURE)
        if teacher is not None:
            loss = torch.lerp(loss, distillation(out.logits, teacher, images.to(device)), recipe.distillation)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        if averaged is not None:
            averaged.update_parameters(model.model)
        loss_sum += loss.detach()
        right += (out.logits.detach().argmax(1) == labels).sum()
    seen = steps * recipe.batch_size * recipe.views
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


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the optimizer; weights decay, biases and normalization do not."""
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    free = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": free, "weight_decay": 0.0}]
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr, betas=(recipe.momentum, 0.99))
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.momentum > 0)


def _save(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    averaged: AveragedModel | None,
    path: Path,
    settings: dict[str, Any],
    history: list[Epoch],
) -> None:
    tensors = dict(model.state_dict())
    if averaged is not None:
        tensors |= {f"{_AVERAGE}{name}": value for name, value in averaged.state_dict().items()}
    for name, parameter in model.named_parameters():
        for part, value in optimizer.state[parameter].items():
            if isinstance(value, Tensor):
                tensors[f"{_OPTIMIZER}{part}.{name}"] = value
    description = {"kind": KIND, "settings": settings, "history": [asdict(epoch) for epoch in history]}
    path.parent.mkdir(parents=True, exist_ok=True)
    tensor_files.write(path, tensors, description)


def _resume(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    averaged: AveragedModel | None,
    path: Path,
    settings: dict[str, Any],
) -> list[Epoch]:
    tensors, description = tensor_files.read(path, KIND)
    theirs = {**EARLIER, **description["settings"]}
    differing = sorted(name for name in settings.keys() | theirs.keys() if theirs.get(name) != settings.get(name))
    if differing:
        raise ValueError(
            f"{path} belongs to a run with other settings ({', '.join(differing)}); delete it, or choose another "
            "folder, or train with the settings it was begun with."
        )
    kept = {name: tensors.pop(name) for name in list(tensors) if name.startswith(_OPTIMIZER)}
    average = {name: tensors.pop(name) for name in list(tensors) if name.startswith(_AVERAGE)}
    if averaged is not None:
        averaged.load_state_dict({name.removeprefix(_AVERAGE): value for name, value in average.items()})
    model.load_state_dict(tensors)
    parameters = dict(model.named_parameters())
    for key, value in kept.items():
        part, _, name = key.removeprefix(_OPTIMIZER).partition(".")
        optimizer.state[parameters[name]][part] = value if part == "step" else value.to(parameters[name])
    return [Epoch(**epoch) for epoch in description["history"]]
