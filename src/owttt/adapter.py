"""The product: a classifier that adapts itself when it is called, and says "unknown"."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, cast, final

import torch
from torch import Tensor, nn

from owttt._utils import state
from owttt._utils import tensors as tensor_files
from owttt._utils.suggest import suggest
from owttt.detector import Detector, NamedScore, Score, Threshold, as_score, as_threshold, is_unit
from owttt.functional import cosine_similarity, wide
from owttt.methods import METHODS
from owttt.methods.base import Method, Setting
from owttt.methods.presets import preset_options
from owttt.network.features import FeatureFunction, same_features, uncompiled
from owttt.source import SourceStats, fingerprint
from owttt.types import ADAPT_THEN_PREDICT, PREDICT_THEN_ADAPT, UNKNOWN, Forward, Order, Prediction, Verdict

KIND: Final = "adapter state"
PROTOCOLS: Final = {PREDICT_THEN_ADAPT: "paper", ADAPT_THEN_PREDICT: "released"}
Classifier = Literal["prototypes", "head"]


@torch.inference_mode(False)
def wrap(
    model: nn.Module,
    method: str | Method | type[Method] = "owttt",
    *,
    source: SourceStats,
    order: Order = PREDICT_THEN_ADAPT,
    score: str | Score = "cosine",
    threshold: str | float | tuple[float, float] | Threshold = "adaptive",
    window: int = 512,
    classifier: Classifier = "prototypes",
    features: str | FeatureFunction | None = None,
    preset: str | None = None,
    **options: Any,
) -> Adapter:
    """Wrap a classifier so that calling it predicts, rejects and adapts. The model itself is copied, never touched.

    method      a name in `METHODS`, a Method class, or a configured Method (then without `options`)
    order       "predict-then-adapt": causal, the paper's Algorithm 1; "adapt-then-predict": the authors' program
    score       "cosine" (the paper's), "centered", "energy", "max-softmax", or a callable; high = unknown
    threshold   "adaptive" (Otsu, weighted), "adaptive-unweighted" (as printed in the paper), "off", a number (fixed),
                a pair (adaptive, kept within bounds), or a callable on the window of scores
    window      how many recent scores the threshold is computed from, N_m
    classifier  "prototypes": the nearest class mean (the paper); "head": the model's own logits
    features    needed again only if `source` was fitted with a callable
    preset      the paper's options for a benchmark, see `PRESETS`; `options` go on top
    """
    if order not in PROTOCOLS:
        raise ValueError(f"order must be one of {list(PROTOCOLS)}, got {order!r}.")
    if classifier not in ("prototypes", "head"):
        raise ValueError(f"classifier must be 'prototypes' or 'head', got {classifier!r}.")
    if not isinstance(source, SourceStats):
        raise TypeError(f"source must be SourceStats (SourceStats.fit or .load), got {type(source).__name__}.")
    model = uncompiled(model)
    found = fingerprint(model)
    if found != source.info.model:
        raise ValueError(
            f"The source statistics were fitted on another model (fingerprint {source.info.model[:12]}…, this one is "
            f"{found[:12]}…). Fit them on this model with SourceStats.fit, or pass the model they belong to; another "
            "dtype or a wrapper around it makes it another model."
        )
    unbound = _make(method, preset, options)
    if unbound.own_score and score != "cosine":
        raise ValueError(
            f"With these options {unbound.name!r} scores by itself ({unbound.own_score}); score={score!r} has no "
            "effect; leave it out, or turn that off (pool_score=False)."
        )
    scoring = as_score(score)
    rule = as_threshold(threshold, unit=is_unit(scoring))
    network = same_features(copy.deepcopy(model), source.feature_point, source.info.head, features)
    home = next((parameter.device for parameter in model.parameters()), source.mean.device)
    setting = Setting(order, weighted=getattr(rule, "weighted", True))
    bound = unbound.bind(network, source.view().to(home), setting)
    return Adapter(bound, score=scoring, threshold=rule, window=window, order=order, classifier=classifier)


def _make(method: str | Method | type[Method], preset: str | None, options: dict[str, Any]) -> Method:
    if isinstance(method, Method):
        if options or preset:
            raise ValueError(
                f"{type(method).__name__} is configured already; options and preset go to a name or a class."
            )
        return copy.deepcopy(method)
    if isinstance(method, str) and method not in METHODS:
        raise ValueError(f"No method {method!r}. {suggest(method, METHODS)} Or pass a Method.")
    kind = METHODS[method] if isinstance(method, str) else method
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise TypeError(f"method must be a name, a Method or its class, got {kind!r}.")
    known = inspect.signature(kind).parameters
    wrong = sorted(set(options) - set(known))
    if wrong:
        hint = suggest(wrong[0], known)
        raise TypeError(f"Method {kind.name!r} has no option {wrong}; it takes {sorted(known)}. {hint}")
    return kind(**(preset_options(preset, kind.name) if preset else {}) | options)


@final
class Adapter(nn.Module):
    """method × score × threshold × order. Made by `wrap`; called with a batch, it answers with a `Prediction`.

    In the paper's order a batch is predicted and judged once, and adapted to after. In the authors' order it is judged,
    adapted to, and predicted with the new weights, with a window of scores for either pass.

    Bad input is refused before anything changes. If adapting itself fails (it has diverged), go back with `reset` or
    `restore`.
    """

    def __init__(
        self, method: Method, *, score: Score, threshold: Threshold, window: int, order: Order, classifier: Classifier
    ) -> None:
        super().__init__()
        self.method = method
        self.order: Order = order
        self.classifier = classifier
        prototypes = method.source.prototypes
        self.detector = Detector(score, threshold, window, like=prototypes)
        self.training_detector = Detector(score, threshold, window, like=prototypes)
        self._source = method.source.fingerprint
        self._initial = state.snapshot(self, method.optimizer)

    def forward(self, x: Tensor) -> Prediction:
        """Predict a batch and adapt to it, in the adapter's order."""
        self._check(x)
        with torch.inference_mode(False), torch.enable_grad():
            x = x.clone() if x.is_inference() else x.detach()
            if self.order == PREDICT_THEN_ADAPT:
                out, verdict = self._judged(x, self.detector, graph=self.method.backpropagates)
                prediction = self._prediction(out, verdict)
                self.method.adapt(x, out, verdict)
                return prediction
            if self.method.adapts:
                self.method.adapt(x, *self._judged(x, self.training_detector, graph=self.method.backpropagates))
            return self._prediction(*self._judged(x, self.detector, graph=False))

    @torch.no_grad()
    def predict(self, x: Tensor) -> Prediction:
        """Predict a batch with the model as it is now; nothing is learned or remembered."""
        self._check(x)
        out = self.method(x)
        return self._prediction(out, self.detector.judge(self._scores(out, self.detector)))

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
            "protocol": PROTOCOLS[self.order],
            "score": self.method.own_score or _name(self.detector.score),
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
        scores = self._scores(out, detector)
        verdict = detector.judge(scores)
        detector.observe(scores)
        return out, verdict

    def _scores(self, out: Forward, detector: Detector) -> Tensor:
        """Return a batch's scores: the method's own, if it has some, or the detector's."""
        if self.method.own_score:
            return detector.checked(self.method.score(out), out)
        return detector.scores(out, self.method.source)

    @torch.no_grad()
    def _prediction(self, out: Forward, verdict: Verdict) -> Prediction:
        """Answer a batch; a score of exactly τ is unknown in the paper, and known in the authors' program."""
        paper = self.order == PREDICT_THEN_ADAPT
        unknown = verdict.strong if paper else verdict.scores > verdict.threshold
        if self.classifier == "head":
            logits = wide(out.logits.detach())
        else:
            logits = cosine_similarity(out.features, self.method.source.prototypes) / self.method.temperature
        label = logits.argmax(dim=1).masked_fill(unknown, UNKNOWN)
        return Prediction(label, verdict.scores.clone(), verdict.threshold.clone(), logits)

    def _check(self, x: Tensor) -> None:
        """Raise if the batch is not what the source data was like, before anything has changed."""
        info = self.method.source.info
        if not isinstance(x, Tensor):
            raise TypeError(f"Expected a batch as a torch.Tensor, got {type(x).__name__}.")
        expected = ", ".join(map(str, info.input_shape))
        if x.dim() != len(info.input_shape) + 1 or tuple(x.shape[1:]) != tuple(info.input_shape):
            raise ValueError(
                f"Expected a batch of shape (B, {expected}), as the source data had, got {tuple(x.shape)}."
            )
        if len(x) == 0:
            raise ValueError(f"Expected at least one sample, got an empty batch of shape {tuple(x.shape)}.")
        parameter = next(self.method.network.parameters(), self.method.source.prototypes)
        if x.device != parameter.device:
            raise ValueError(f"The adapter is on {parameter.device}, the batch on {x.device}; move one of them.")
        source_dtype: torch.dtype = getattr(torch, info.input_dtype)
        needed = parameter.dtype if source_dtype.is_floating_point else source_dtype
        mixed = x.is_floating_point() and torch.is_autocast_enabled(x.device.type)
        if x.dtype != needed and not mixed:
            raise TypeError(f"Expected a batch of {needed}, got {x.dtype}; convert it with x.to({needed}).")
        if x.is_floating_point() and not x.isfinite().all():
            bad = (~x.isfinite()).flatten(1).any(dim=1).nonzero().flatten().tolist()
            raise ValueError(f"The batch holds NaN or Inf in {len(bad)} of {len(x)} samples: {bad[:10]}.")


def _name(plug: Callable[..., Tensor]) -> Any:
    """Describe a score or threshold for the record."""
    if isinstance(plug, NamedScore):
        return plug.name
    if is_dataclass(plug):
        return f"{type(plug).__name__}({', '.join(f'{k}={v}' for k, v in asdict(cast(Any, plug)).items())})"
    return getattr(plug, "__qualname__", type(plug).__qualname__)
