"""What a method may know of the source data: class prototypes and Gaussians of its features, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from owttt._utils import tensors as tensor_files
from owttt._utils.progress import track
from owttt._utils.queue import Statistics
from owttt._utils.warning import warn
from owttt.functional import class_basis, wide
from owttt.network.features import FeatureExtractor, FeatureFunction, FeaturePoint, locate_features, uncompiled
from owttt.network.inputs import Batch, Fields, as_pair, tensors_of
from owttt.network.norm import batch_norms
from owttt.source.moments import BatchSpread, ClassMoments, InputMoments
from owttt.source.quantiles import (
    DEPTH_STATISTICS,
    FEATURE_SCORES,
    JOINT_TERMS,
    PREFIX,
    ScoreSample,
    drawn_quantiles,
    tensor_name,
)
from owttt.types import Forward

KIND: Final = "source statistics"
INPUT_STATISTICS: Final = ("input_range", "input_mean", "input_std")
LATER: Final = (*INPUT_STATISTICS, *DEPTH_STATISTICS)
"""What earlier statistics do not have; like quantiles no part of the fingerprint."""
FEW: Final = 50
"""Samples below which statistics are too rough to go by."""
FEW_HELD_OUT: Final = 200
"""Held-out samples below which the threshold would notice less with them than without."""
FULL_COVARIANCE_LIMIT: Final = 2**26
"""K·D² numbers up to which every class gets a full covariance; beyond, its variances (TTAC's ImageNet form)."""

ClassCovariance = Literal["auto", "full", "diagonal"]
"""Full covariances of the classes, their variances only, or what fits."""

Inputs = dict[str, tuple[tuple[int, ...], str]]
"""Shape and type of a sample under every name."""

SPREAD_BATCH: Final = 1536
"""Samples of the source batches between which TTT++ measures the unit of its losses: the length of its queue."""


@dataclass(frozen=True)
class SourceInfo:
    """What the statistics belong to."""

    num_classes: int
    samples: int
    feature_point: str
    head: tuple[str, ...]
    """The modules behind the features."""
    input_shape: tuple[int, ...]
    input_dtype: str
    model: str
    """Fingerprint of the classifier they were fitted on."""
    fields: Inputs = field(default_factory=dict)
    """Name → shape and type of a sample, where batches are several named tensors."""
    held_out: int = 0
    """Samples that the classifier was not trained on and quantiles of scores are of; 0 if there were none."""

    @property
    def inputs(self) -> Inputs:
        """Shape and type of a sample under every name; a lone tensor has none."""
        return self.fields or {"": (self.input_shape, self.input_dtype)}


@final
class SourceStats(Statistics):
    """Prototypes, mean and covariances of source features, fitted once and shipped beside the weights.

    Tensors (moving with `.to`): `prototypes` `(K, D)` unit class means, `class_means` `(K, D)`, `class_covariances`
    `(K, D, D)` or `(K, D)` variances, `mean` `(D,)`, `covariance` `(D, D)`, and `mean_spread` and `covariance_spread`,
    the discrepancies between source batches of `spread_samples`. Of the inputs `input_range` `(2,)`, `input_mean` and
    `input_std` per channel; of how samples look to the layers on the way `depth_mean` and `depth_std` (networks
    with normalization layers); None in statistics that were fitted before these were kept. Quantiles of the source's
    own scores: `score_quantiles`.
    """

    version: ClassVar[int] = 3
    """Counts what was added to them: statistics that were kept of an earlier version are fitted again."""
    class_means: Tensor
    class_covariances: Tensor
    mean: Tensor
    covariance: Tensor
    mean_spread: Tensor
    covariance_spread: Tensor
    spread_samples: Tensor
    prototypes: Tensor
    input_range: Tensor | None
    input_mean: Tensor | None
    input_std: Tensor | None
    depth_mean: Tensor | None
    depth_std: Tensor | None

    def __init__(self, info: SourceInfo, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.info = info
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor, persistent=False)
        for name in LATER:
            if name not in tensors:
                self.register_buffer(name, None, persistent=False)
        self.register_buffer("prototypes", F.normalize(self.class_means, dim=1), persistent=False)

    @classmethod
    @torch.inference_mode(False)
    def fit(
        cls,
        model: nn.Module,
        loader: Iterable[Any],
        num_classes: int,
        *,
        features: str | FeatureFunction | None = None,
        device: torch.device | str | None = None,
        class_covariance: ClassCovariance = "auto",
        held_out: Iterable[Any] | None = None,
        progress: bool = True,
    ) -> SourceStats:
        """Measure the statistics on labeled source data.

        Args:
            model: The classifier; it is run in evaluation mode and left as it was.
            loader: Yields `(x, y)`, plain images and true labels, or named tensors with `labels` among them.
            num_classes: The number of known classes, K.
            features: Names the features if the final linear layer cannot be found: a module whose output they are, or
                a function `f(model, x)` that returns them, or `(features, logits)`.
            device: Where batches are moved; they stay where they come if it is not given.
            class_covariance: Full covariances of the classes, their variances only, or what fits ("auto").
            held_out: Yields labeled samples of the known classes that the classifier was *not* trained on, such as its
                validation set; a thousand or more. What these score tells better what to expect of new samples than
                what training samples score: the threshold by evidence then notices smaller shares of unknown samples,
                and takes smaller shifts for such.
            progress: Whether a bar is shown on a terminal.

        Returns:
            The statistics, to be saved beside the weights.

        Raises:
            ValueError: The loader gives something else, a class has no sample, or no features are found.
            TypeError: The model is TorchScript.

        Example:
            >>> import torch, owttt
            >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
            >>> loader = [(torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 0, 1]))]
            >>> owttt.SourceStats.fit(model, loader, num_classes=2, progress=False).prototypes.shape
            torch.Size([2, 8])
        """
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}.")
        model = uncompiled(model)
        with _evaluating(model), torch.no_grad():
            stream = track(loader, "source statistics", show=progress)
            batches = (_checked(batch, num_classes, model, device) for batch in stream)
            first = next(batches, None)
            if first is None:
                raise ValueError("The loader is empty; source statistics need at least one sample of every class.")
            sample = first[0][:2]
            inputs = _inputs(sample)
            extractor = locate_features(model, sample, num_classes, features)
            extractor.watches = True
            _warn_of_probabilities(extractor(sample).logits)
            size = _features(extractor, sample, num_classes).features.shape[1]
            moments = ClassMoments(num_classes, diagonal=_diagonal(class_covariance, num_classes, size))
            spread = BatchSpread(SPREAD_BATCH)
            inputs_seen = InputMoments()
            scored = ScoreSample(residual=bool(batch_norms(model)))
            for x, y in chain((first,), batches):
                out = _features(extractor, x, num_classes)
                z = out.features
                moments.add(z, y)
                spread.add(z)
                scored.add(z, out.logits, y, out.depth)
                inputs_seen.add(next(iter(tensors_of(x).values())))
            if held_out is not None:
                new = track(held_out, "held-out samples", show=progress)
                pairs = (_checked(batch, num_classes, model, device) for batch in new)
                new_scored = _scored(pairs, extractor, num_classes, inputs)
        _check_counts(moments.counts)
        tensors = {name: value.to(z.dtype) for name, value in (moments.result() | spread.result()).items()}
        _check_prototypes(tensors["class_means"])
        extra = inputs_seen.result() | scored.result(tensors["class_means"], tensors["mean"])
        if held_out is not None:
            _compare_right(new_scored, scored, tensors["class_means"])
            extra |= new_scored.held_out_result(tensors["class_means"], tensors["mean"], extra)
        tensors |= {name: value.to(z.dtype) for name, value in extra.items()}
        info = SourceInfo(
            num_classes=num_classes,
            samples=int(moments.counts.sum()),
            feature_point=str(extractor.point),
            head=extractor.head,
            input_shape=next(iter(inputs.values()))[0],
            input_dtype=next(iter(inputs.values()))[1],
            model=fingerprint(model),
            fields=inputs if isinstance(sample, Fields) else {},
            held_out=0 if held_out is None else len(new_scored),
        )
        return cls(info, tensors)

    @property
    def num_classes(self) -> int:
        """The number of known classes, K."""
        return self.info.num_classes

    @torch.no_grad()
    def score_quantiles(self, score: str = "cosine", *, right: bool = False, held_out: bool = False) -> Tensor | None:
        """Return what the source's samples score, as quantiles at equal steps from 0 to 1.

        With `held_out`, those of samples that the classifier was not trained on, if there were such. With `right`, only
        of samples whose class mean is the nearest; statistics that were fitted before these were kept give those of all
        samples. Statistics that were fitted before any were kept have them only of scores of features, drawn from the
        classes' Gaussians; None of the others, and of scores without a name. The joint score is the cosine where looks
        are not known.
        """
        score = self._kept_as(score)
        for new, only in ((held_out, right), (False, right), (False, False)):
            if (kept := self._buffers.get(tensor_name(score, right=only, held_out=new))) is not None:
                return kept
        return self._drawn[score].to(self.mean) if score in FEATURE_SCORES else None

    def held_out(self, score: str = "cosine") -> int:
        """Return how many samples `score_quantiles` with `held_out` are of, if the classifier was not trained on them.

        It is 0 where there were no such samples, or what they score was not kept of this score.
        """
        kept = tensor_name(self._kept_as(score), held_out=True) in self._buffers
        return self.info.held_out if kept else 0

    def _kept_as(self, score: str) -> str:
        return "cosine" if score == "joint" and self.depth_mean is None else score

    @cached_property
    def _drawn(self) -> dict[str, Tensor]:
        return drawn_quantiles(self.class_means, self.class_covariances, self.mean)

    @cached_property
    def joint_units(self) -> dict[str, Tensor]:
        """The quantiles that terms of the joint score are in units of, where these are known."""
        found = {name: self._buffers.get(tensor_name(name)) for name in JOINT_TERMS}
        return {name: quantiles for name, quantiles in found.items() if quantiles is not None}

    @cached_property
    def class_basis(self) -> Tensor:
        """An orthonormal basis `(D, R)` of the directions in which classes differ; `.to` does not move it."""
        return class_basis(self.class_means, self.mean)

    @property
    def looks_fingerprint(self) -> str:
        """SHA-256 of what `fingerprint` leaves out and the joint score depends on; empty where it is the cosine."""
        if self.depth_mean is None or self.depth_std is None:
            return ""
        looks = (("mean", self.depth_mean), ("std", self.depth_std), *sorted(self.joint_units.items()))
        return tensor_files.digest((name, value.float()) for name, value in looks)

    @property
    def feature_point(self) -> FeaturePoint:
        """Where in the classifier the features are."""
        return FeaturePoint.parse(self.info.feature_point)

    @property
    def diagonal(self) -> bool:
        """Whether classes have variances only."""
        return self.class_covariances.dim() == 2

    @property
    def fingerprint(self) -> str:
        """SHA-256 of these statistics and of the model they belong to."""
        ours = [
            (name, value)
            for name, value in sorted(self._tensors().items())
            if name not in LATER and not name.startswith(PREFIX)
        ]
        tensors = ((name, value.float()) for name, value in ours)
        return tensor_files.digest((*tensors, (self.info.model, torch.empty(0))))

    def _tensors(self) -> dict[str, Tensor]:
        return {name: buffer for name, buffer in self.named_buffers() if name != "prototypes"}

    def view(self) -> SourceStats:
        """Return an object of its own on the same tensors: moving it to a device does not move this one."""
        other = copy.copy(self)
        other._buffers = dict(self._buffers)
        return other

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file, atomically."""
        tensor_files.write(path, self._tensors(), {"kind": KIND, **asdict(self.info)})

    @classmethod
    @torch.inference_mode(False)
    def load(cls, path: str | Path) -> SourceStats:
        """Read what `save` wrote; a damaged file is an error."""
        tensors, description = tensor_files.read(path, KIND)
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in description.items()
            if name not in ("kind", "fields")
        }
        named = {name: (tuple(shape), dtype) for name, (shape, dtype) in description.get("fields", {}).items()}
        return cls(SourceInfo(**fields, fields=named), tensors)

    def extra_repr(self) -> str:
        """Say what it was fitted on."""
        return f"{self.num_classes} classes, {self.info.samples} samples, features at {self.info.feature_point}"


def fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 of a classifier's weights and buffers."""
    return tensor_files.digest(model.state_dict().items())


@contextmanager
def _evaluating(model: nn.Module) -> Any:
    """Put every module in evaluation mode, and back as each one was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _features(extractor: FeatureExtractor, x: Batch, num_classes: int) -> Forward:
    """Return what a classifier says of source data, checked."""
    out: Forward = extractor(x)
    if out.logits.shape[1] != num_classes:
        raise ValueError(f"num_classes is {num_classes}, the classifier has {out.logits.shape[1]} outputs.")
    if not out.features.isfinite().all():
        raise ValueError("The classifier gives features that are not finite on source data.")
    return replace(out, features=wide(out.features))


def _warn_of_probabilities(logits: Tensor) -> None:
    """Warn if the outputs are probabilities: entropy, energy and confidence would all be taken of the wrong thing."""
    sums = wide(logits).sum(dim=1)
    if logits.shape[1] > 1 and bool((logits >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
        warn(
            "The classifier's outputs are probabilities (is there a softmax at its end?). Methods expect logits: take "
            "the softmax off."
        )


def _scored(
    batches: Iterable[tuple[Batch, Tensor]], extractor: FeatureExtractor, num_classes: int, inputs: Inputs
) -> ScoreSample:
    """Return the scores of held-out samples, which must be of the same shape and type as the others."""
    scored = ScoreSample(residual=bool(batch_norms(extractor)))
    try:
        for x, y in batches:
            if _inputs(x) != inputs:
                raise ValueError(f"Samples must be like those of the loader, {inputs}; got {_inputs(x)}.")
            out = _features(extractor, x, num_classes)
            scored.add(out.features, out.logits, y, out.depth)
    except ValueError as error:
        raise ValueError(f"In held_out: {error}") from error
    if not len(scored):
        raise ValueError("There are no held-out samples; give a few hundred, or leave held_out out.")
    if len(scored) < FEW_HELD_OUT:
        warn(
            f"{len(scored)} held-out samples are too few to tell what new samples score, and the threshold will hardly "
            "notice unknown ones. Give a thousand, or leave held_out out."
        )
    return scored


def _compare_right(new: ScoreSample, trained_on: ScoreSample, class_means: Tensor) -> None:
    """Warn if far fewer held-out samples are classified right than training samples."""
    shares = [float(some.right(class_means).float().mean()) for some in (new, trained_on)]
    if shares[0] < shares[1] / 2:
        warn(
            f"{100 * shares[0]:.0f} % of the held-out samples are classified right, and {100 * shares[1]:.0f} % of the "
            "others. Are their labels in the same order, and their images prepared in the same way?"
        )


def _inputs(x: Batch) -> Inputs:
    """Return shape and type of a sample under every name."""
    return {
        name: (tuple(part.shape[1:]), str(part.dtype).removeprefix("torch.")) for name, part in tensors_of(x).items()
    }


def _diagonal(choice: str, num_classes: int, dimension: int) -> bool:
    if choice not in ("auto", "full", "diagonal"):
        raise ValueError(f"class_covariance must be 'auto', 'full' or 'diagonal', got {choice!r}.")
    return choice == "diagonal" or (choice == "auto" and num_classes * dimension**2 > FULL_COVARIANCE_LIMIT)


def _checked(batch: Any, num_classes: int, model: nn.Module, device: torch.device | str | None) -> tuple[Batch, Tensor]:
    x, y = as_pair(batch)
    if not isinstance(x, Tensor | Fields) or not isinstance(y, Tensor):
        raise ValueError(
            f"The loader must yield pairs (x, y) of tensors, or named tensors with labels; got {type(x).__name__} and "
            f"{type(y).__name__}."
        )
    x, y = (x, y) if device is None else (x.to(device), y.to(device))
    shapes = {name: tuple(part.shape) for name, part in tensors_of(x).items()}
    if y.dim() != 1 or len(x) != len(y) or not len(x):
        raise ValueError(f"Expected one class per sample, got x {shapes.get('', shapes)} and y {tuple(y.shape)}.")
    home = next((parameter.device for parameter in model.parameters()), y.device)
    devices = {part.device for part in tensors_of(x).values()}
    if devices | {y.device} != {home}:
        raise ValueError(
            f"The classifier is on {home}, x on {', '.join(map(str, devices))}, y on {y.device}; pass "
            f"device={str(home)!r}."
        )
    for part in tensors_of(x).values():
        _check_type(part, next((parameter.dtype for parameter in model.parameters()), part.dtype))
    if y.is_floating_point() or ((y < 0) | (y >= num_classes)).any():
        raise ValueError(
            f"Source labels must be whole numbers 0 … {num_classes - 1}, got {torch.unique(y).tolist()[:10]}."
        )
    return x, y.long()


def _check_type(x: Tensor, dtype: torch.dtype) -> None:
    if x.is_floating_point() and x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"The classifier is in {dtype}, the source data in {x.dtype}; convert one of them.")
    if x.is_floating_point() and not x.isfinite().all():
        raise ValueError("The source data holds NaN or Inf.")


def _check_counts(counts: Tensor) -> None:
    missing = (counts == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(
            f"No source sample of {len(missing)} of {len(counts)} classes: {missing[:20]}. Every known class needs at "
            "least one; add samples or lower num_classes."
        )
    if int(counts.sum()) < 2:
        raise ValueError("Source statistics need at least two samples.")
    if int(counts.sum()) < FEW:
        warn(
            f"Source statistics of {int(counts.sum())} samples are rough, and the threshold, which knows from them "
            "what known samples score, will reject many of these. Give a few hundred samples, or better all "
            "of the training data."
        )


def _check_prototypes(class_means: Tensor) -> None:
    lost = (class_means.norm(dim=1) == 0).nonzero().flatten().tolist()
    if lost:
        raise ValueError(f"The mean feature of classes {lost[:20]} is zero, so they have no direction to compare with.")
