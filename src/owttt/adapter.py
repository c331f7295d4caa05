"""The product: a classifier that adapts itself when it is called, and says "unknown"."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Final, Literal, Self, cast, final

import torch
from torch import Tensor, nn

from owttt._utils import state
from owttt._utils import tensors as tensor_files
from owttt._utils.suggest import suggest
from owttt.detector import DEFAULT_SCORE, Detector, NamedScore, Score, Threshold, as_score, as_threshold, is_unit
from owttt.functional import wide
from owttt.methods import find_method
from owttt.methods.base import Method
from owttt.methods.presets import preset_options
from owttt.network.features import FeatureFunction, same_features, uncompiled
from owttt.network.inputs import Fields, as_batch, own, tensors_of
from owttt.source import SourceStats, fingerprint
from owttt.types import ADAPT_THEN_PREDICT, PREDICT_THEN_ADAPT, UNKNOWN, Forward, Order, Prediction, Verdict

KIND: Final = "adapter state"
ORDERS: Final = (PREDICT_THEN_ADAPT, ADAPT_THEN_PREDICT)
CLASSIFIERS: Final = ("prototypes", "head")
TEMPERATURE: Final = 0.1
"""By which cosines to the class means are divided to make logits, δ of the paper."""
Classifier = Literal["prototypes", "head"]


@torch.inference_mode(False)
def wrap(
    model: nn.Module,
    method: str | Method | type[Method] = "owttt",
    *,
    source: SourceStats,
    order: Order = PREDICT_THEN_ADAPT,
    score: str | Score = DEFAULT_SCORE,
    threshold: str | float | tuple[float, float] | Threshold = "adaptive",
    window: int = 512,
    classifier: Classifier = "prototypes",
    features: str | FeatureFunction | None = None,
    preset: str | None = None,
    classes: Sequence[str] | None = None,
    **options: Any,
) -> Adapter:
    """Wrap a classifier so that calling it predicts, rejects and adapts. The model itself is copied, never touched.

    Args:
        model: Any classifier whose penultimate features `source` was fitted on.
        method: A name in `METHODS`, `package.module:Class`, a Method class, or a configured Method (then without
            `options`).
        source: What is known of the source data: `SourceStats.fit` or `.load`.
        order: "predict-then-adapt", causal, the paper's Algorithm 1; "adapt-then-predict", the authors' program.
        score: "cosine" (the paper's), "centered", "energy", "max-softmax", `package.module:function`, or a callable;
            high = unknown.
        threshold: "adaptive" (Otsu, weighted), "adaptive-unweighted" (as printed in the paper), "off", a number
            (fixed), a pair (adaptive, kept within bounds), or a callable on the window of scores.
        window: How many recent scores the threshold is computed from, N_m.
        classifier: "prototypes", the nearest class mean (the paper); "head", the model's own logits.
        features: Needed again only if `source` was fitted with a callable.
        preset: The paper's options for a benchmark, see `PRESETS`; `options` go on top.
        classes: Names of the known classes, for `Prediction.names`.
        **options: Of the method.

    Returns:
        An adapter: call it with a batch and it answers with a `Prediction`.

    Raises:
        ValueError: The statistics belong to another model, a name or value is not one, or the method cannot adapt this
            network.
        TypeError: An option or a kind of argument does not exist.

    Example:
        >>> import torch, owttt
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> loader = [(torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 0, 1]))]
        >>> source = owttt.SourceStats.fit(model, loader, num_classes=2, progress=False)
        >>> adapter = owttt.wrap(model, "owttt", source=source, classes=["cat", "dog"])
        >>> len(adapter(torch.randn(3, 4)).names)
        3
    """
    if order not in ORDERS:
        raise ValueError(f"order must be one of {list(ORDERS)}, got {order!r}.")
    if classifier not in CLASSIFIERS:
        raise ValueError(f"classifier must be 'prototypes' or 'head', got {classifier!r}.")
    if not isinstance(source, SourceStats):
        raise TypeError(f"source must be SourceStats (SourceStats.fit or .load), got {type(source).__name__}.")
    if classes is not None and len(classes) != source.num_classes:
        raise ValueError(f"The source statistics have {source.num_classes} classes, got {len(classes)} names.")
    model = uncompiled(model)
    found = fingerprint(model)
    if found != source.info.model:
        raise ValueError(
            f"The source statistics were fitted on another model (fingerprint {source.info.model[:12]}…, this one is "
            f"{found[:12]}…). Fit them on this model with SourceStats.fit, or pass the model they belong to; another "
            "dtype or a wrapper around it makes it another model."
        )
    unbound = _make(method, preset, options)
    scoring = _score(unbound, score)
    network = same_features(copy.deepcopy(model), source.feature_point, source.info.head, features)
    home = next((parameter.device for parameter in model.parameters()), source.mean.device)
    return Adapter(
        unbound.bind(network, source.view().to(home), order),
        score=scoring,
        threshold=as_threshold(threshold, unit=is_unit(scoring)),
        window=window,
        order=order,
        classifier=classifier,
        classes=None if classes is None else tuple(classes),
    )


def _score(method: Method, score: str | Score) -> Score:
    """Return the method's own score, or the chosen one; both at once are an error."""
    own = method.own_score
    if own is None:
        return as_score(score)
    if score != DEFAULT_SCORE:
        raise ValueError(
            f"With these options {method.name!r} scores by itself ({own.name}), and score={score!r} would have no "
            f"effect; leave it out, or turn that off: {own.way_out}."
        )
    return own


def _make(method: str | Method | type[Method], preset: str | None, options: dict[str, Any]) -> Method:
    if isinstance(method, Method):
        if options or preset:
            raise ValueError(
                f"{type(method).__name__} is configured already; options and preset go to a name or a class."
            )
        return copy.deepcopy(method)
    kind = find_method(method) if isinstance(method, str) else method
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise TypeError(f"method must be a name, a Method or its class, got {kind!r}.")
    known = inspect.signature(kind).parameters
    wrong = sorted(set(options) - set(known))
    if wrong:
        hint = suggest(wrong[0], known)
        raise TypeError(f"Method {kind.name!r} has no option {wrong}; it takes {sorted(known)}. {hint}")
    for name, value in options.items():
        _check_option(kind.name, name, value, known[name].default)
    return kind(**(preset_options(preset, kind.name) if preset else {}) | options)


def _check_option(method: str, name: str, value: Any, default: Any) -> None:
    """Raise if an option that is a number, a truth or a word by default is something else."""
    kinds = {bool: (bool, "true or false"), int: (Real, "a number"), float: (Real, "a number"), str: (str, "a word")}
    kind, told = kinds.get(type(default), (object, ""))
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"Option {name!r} of method {method!r} must be {told}, {default!r} by default; got {value!r}.")


@final
class Adapter(nn.Module):
    """method × score × threshold × order. Made by `wrap`; called with a batch, it answers with a `Prediction`.

    In the paper's order a batch is predicted and judged once, and adapted to after. In the authors' order it is judged,
    adapted to, and predicted with the new weights, with a window of scores for either pass.

    Bad input is refused before anything changes. If adapting itself fails (it has diverged), go back with `reset` or
    `restore`.
    """

    def __init__(
        self,
        method: Method,
        *,
        score: Score,
        threshold: Threshold,
        window: int,
        order: Order,
        classifier: Classifier,
        classes: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__()
        self.method = method
        self.order: Order = order
        self.classifier = classifier
        self.classes = classes
        prototypes = method.source.prototypes
        self.detector = Detector(score, threshold, window, like=prototypes)
        if order == ADAPT_THEN_PREDICT:
            self.training_detector = Detector(score, threshold, window, like=prototypes)
        self._source = method.source.fingerprint
        self._initial = state.snapshot(self, method.optimizer)

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Prediction:
        """Predict a batch and adapt to it, in the adapter's order.

        Args:
            x: A batch like those of the source data: a tensor, or named tensors (labels among them are not looked at).

        Returns:
            The answer for every sample.

        Raises:
            ValueError: The batch is not like the source data; nothing has changed then.
            TypeError: Likewise, of another type.
        """
        checked = self._checked(x)
        with torch.inference_mode(False), torch.enable_grad():
            batch = own(checked)
            if self.order == PREDICT_THEN_ADAPT:
                out, verdict = self._judged(batch, self.detector, graph=self.method.backpropagates)
                prediction = self._prediction(out, verdict)
                self.method.adapt(batch, out, verdict)
                return prediction
            if self.method.adapts:
                judged = self._judged(batch, self.training_detector, graph=self.method.backpropagates)
                self.method.adapt(batch, *judged)
            return self._prediction(*self._judged(batch, self.detector, graph=False))

    @torch.no_grad()
    def predict(self, x: Tensor | Mapping[str, Tensor]) -> Prediction:
        """Predict a batch with the model as it is now; nothing is learned or remembered."""
        out = self.method(self._checked(x))
        return self._prediction(out, self.detector.judge(self.detector.scores(out, self.method.source)))

    @torch.inference_mode(False)
    def reset(self) -> None:
        """Put everything back as it was before the first batch."""
        state.load(self._initial, self, self.method.optimizer)

    def save(self, path: str | Path) -> None:
        """Write the complete state (weights, optimizer, windows, pool, Gaussians) to a safetensors file, atomically."""
        tensor_files.write(path, state.collect(self, self.method.optimizer), {"kind": KIND, **self.config})

    @torch.inference_mode(False)
    def restore(self, path: str | Path) -> Self:
        """Resume from a file that `save` wrote, of an adapter wrapped with the same model, source and options."""
        tensors, description = tensor_files.read(path, KIND)
        theirs = {name: value for name, value in description.items() if name != "kind"}
        mine = self.config
        different = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        if different:
            pairs = "; ".join(f"{name}: file {theirs.get(name)!r}, here {mine.get(name)!r}" for name in different)
            raise ValueError(f"{path}: the state of an adapter made differently. {pairs}.")
        state.check(tensors, self, str(path))
        state.load(tensors, self, self.method.optimizer)
        return self

    @property
    def config(self) -> dict[str, Any]:
        """What this adapter does, in full, as plain JSON values: record it with every result."""
        return {
            "method": self.method.name,
            "options": self.method.options(),
            "order": self.order,
            "score": _name(self.detector.score),
            "threshold": _name(self.detector.threshold),
            "window": self.detector.window.capacity,
            "classifier": self.classifier,
            "features": self.method.source.info.feature_point,
            "class_covariance": "diagonal" if self.method.source.diagonal else "full",
            "source": self._source,
        }

    def extra_repr(self) -> str:
        """Say what was chosen."""
        return ", ".join(f"{name}={value!r}" for name, value in self.config.items() if name != "source")

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: the method decides when a layer uses batch statistics."""
        del mode
        return super().train(False)

    def _judged(self, x: Tensor, detector: Detector, *, graph: bool) -> tuple[Forward, Verdict]:
        """Run the network and the detector on a batch, and remember its scores."""
        with torch.set_grad_enabled(graph):
            out: Forward = self.method(x)
        scores = detector.scores(out, self.method.source)
        verdict = detector.judge(scores)
        detector.observe(scores)
        return out, verdict

    @torch.no_grad()
    def _prediction(self, out: Forward, verdict: Verdict) -> Prediction:
        """Answer a batch; a score of exactly τ is unknown in the paper, and known in the authors' program."""
        paper = self.order == PREDICT_THEN_ADAPT
        unknown = verdict.unknown if paper else verdict.scores > verdict.threshold
        head = wide(out.logits.detach())
        logits = head if self.classifier == "head" else out.cosines(self.method.source.prototypes) / TEMPERATURE
        closed = logits.argmax(dim=1)
        return Prediction(
            labels=closed.masked_fill(unknown, UNKNOWN),
            scores=verdict.scores.clone(),
            threshold=verdict.threshold.clone(),
            logits=logits,
            closed=closed,
            confidence=head.softmax(dim=1).gather(1, closed[:, None])[:, 0],
            classes=self.classes,
        )

    def _checked(self, x: Any) -> Any:
        """Return a batch if it is what the source data was like, and raise if not, before anything has changed."""
        x = as_batch(x)
        if not isinstance(x, Tensor | Fields):
            raise TypeError(f"Expected a batch as a torch.Tensor, or as named tensors, got {type(x).__name__}.")
        inputs, found = self.method.source.info.inputs, tensors_of(x)
        if inputs.keys() != found.keys():
            raise ValueError(f"Expected {_told(inputs)}, as the source data had, got {_told(found)}.")
        for name, (shape, dtype) in inputs.items():
            self._check(found[name], shape, getattr(torch, dtype))
        return x

    def _check(self, x: Tensor, shape: tuple[int, ...], source_dtype: torch.dtype) -> None:
        expected = ", ".join(map(str, shape))
        if x.dim() != len(shape) + 1 or tuple(x.shape[1:]) != tuple(shape):
            raise ValueError(
                f"Expected a batch of shape (B, {expected}), as the source data had, got {tuple(x.shape)}."
            )
        if len(x) == 0:
            raise ValueError(f"Expected at least one sample, got an empty batch of shape {tuple(x.shape)}.")
        parameter = next(self.method.network.parameters(), self.method.source.prototypes)
        if x.device != parameter.device:
            raise ValueError(f"The adapter is on {parameter.device}, the batch on {x.device}; move one of them.")
        needed = parameter.dtype if source_dtype.is_floating_point else source_dtype
        either = getattr(self.method.network.model, "takes_bytes", False) and x.dtype in (torch.uint8, parameter.dtype)
        mixed = x.is_floating_point() and torch.is_autocast_enabled(x.device.type)
        if x.dtype != needed and not mixed and not either:
            raise TypeError(f"Expected a batch of {needed}, got {x.dtype}; convert it with x.to({needed}).")
        if x.is_floating_point() and not x.isfinite().all():
            bad = (~x.isfinite()).reshape(len(x), -1).any(dim=1).nonzero().flatten().tolist()
            raise ValueError(f"The batch holds NaN or Inf in {len(bad)} of {len(x)} samples: {bad[:10]}.")


def _told(names: Iterable[str]) -> str:
    """Say what a batch is made of."""
    return "one tensor" if list(names) == [""] else f"named tensors {sorted(names)}"


def _name(plug: Callable[..., Tensor]) -> Any:
    """Describe a score or threshold for the record."""
    if isinstance(plug, NamedScore):
        return plug.name
    if is_dataclass(plug):
        return f"{type(plug).__name__}({', '.join(f'{k}={v}' for k, v in asdict(cast(Any, plug)).items())})"
    return getattr(plug, "__qualname__", type(plug).__qualname__)
