"""Penultimate features of any classifier: what goes into its final linear layer, or what the caller names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from owttt._utils.state import temporary
from owttt.functional import fresh_autocast
from owttt.network.depth import watching
from owttt.network.inputs import Batch, call, first_argument, tensors_of
from owttt.network.ranks import Ranks
from owttt.types import Forward

FeatureFunction = Callable[[nn.Module, Any], Tensor | tuple[Tensor, Tensor]]
"""`f(model, x)` gives the features `(B, D)`, or `(features, logits)`, which saves a second pass for the logits."""

CALLABLE: Final = "callable"


@dataclass(frozen=True)
class FeaturePoint:
    """Where the features are: the `input` or `output` of a named module, or a `callable`."""

    kind: str
    module: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.module}" if self.module else self.kind

    @classmethod
    def parse(cls, text: str) -> FeaturePoint:
        """Read what `str` wrote."""
        kind, _, module = text.partition(":")
        return cls(kind, module)


class FeatureExtractor(nn.Module):
    """A classifier that says its features along with its logits, in one pass.

    `head` names the modules behind the features, which no loss on features can reach.
    """

    def __init__(
        self,
        model: nn.Module,
        point: FeaturePoint,
        function: FeatureFunction | None = None,
        head: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        if (point.kind == CALLABLE) != (function is not None):
            raise ValueError(f"features at {str(point)!r} and function {function!r} do not go together.")
        self.model = model
        self.point = point
        self.function = function
        self.head = head
        self.ranks: Ranks | None = None
        """The processes that passes are shared with."""
        self.watches = False
        """Whether passes also tell how samples look on the way (`Forward.depth`)."""

    def forward(self, x: Batch) -> Forward:
        """Run the classifier once on `x` and return features and logits."""
        return self.alone(x) if self.ranks is None else self.ranks.shared(self.alone, x)

    def alone(self, x: Batch) -> Forward:
        """Run the classifier on all of `x` in this process."""
        with fresh_autocast(next(iter(tensors_of(x).values())).device), _unchanged(x):
            if not self.watches:
                return self._run(x)
            with watching(self.model, len(x)) as seen:
                out = self._run(x)
            return replace(out, depth=seen.result())

    def _run(self, x: Batch) -> Forward:
        return self._watched(x) if self.function is None else self._call(self.function, x)

    def _watched(self, x: Batch) -> Forward:
        seen: list[Any] = []
        with _recording(self.model.get_submodule(self.point.module), self.point.kind, seen):
            logits = _logits(call(self.model, x))
        if not seen:
            raise ValueError(
                f"The classifier did not call its module {self.point.module!r}, where features were expected."
            )
        return Forward(_one_vector_each(seen[-1], str(self.point)), logits)

    def _call(self, function: FeatureFunction, x: Batch) -> Forward:
        result = function(self.model, x)
        features, logits = result if isinstance(result, tuple) else (result, _logits(call(self.model, x)))
        return Forward(_one_vector_each(features, CALLABLE), logits)

    def backbone_parameters(self) -> list[nn.Parameter]:
        """Return the parameters the features depend on: all but the head's."""
        behind = {id(p) for name in self.head for p in self.model.get_submodule(name).parameters()}
        return [parameter for parameter in self.model.parameters() if id(parameter) not in behind]


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the module behind `torch.compile`, whose graphs would not see that BatchNorm changes its mode.

    TorchScript is refused: its graph is frozen, and neither hooks nor modes reach into it.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "The model is TorchScript, whose frozen graph cannot be adapted. Pass the nn.Module that it was made of."
        )
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


def locate_features(
    model: nn.Module, x: Batch, num_classes: int, features: str | FeatureFunction | None = None
) -> FeatureExtractor:
    """Find where the features of `model` are, by name, by function, or (None) by watching it run on `x`.

    Found automatically is the last `nn.Linear` that turns one vector a sample into `num_classes` numbers.
    """
    calls = _watch(model, x)
    final = next((call for call in reversed(calls) if call.classifies(num_classes)), None)
    if callable(features):
        return FeatureExtractor(model, FeaturePoint(CALLABLE), features, (final.name,) if final else ())
    if features is not None:
        point = _named_output(model, features)
        ends = [call.ended for call in calls if call.name == features]
        return FeatureExtractor(model, point, head=_behind(calls, ends[-1]) if ends else ())
    if final is None:
        raise ValueError(
            f"No final linear layer with {num_classes} outputs was found in {type(model).__name__}. "
            f'Pass features="NAME", the module whose output is the feature vector, or a callable. {_candidates(calls)}'
        )
    return FeatureExtractor(model, FeaturePoint("input", final.name), head=_behind(calls, final.started))


def same_features(
    model: nn.Module, point: FeaturePoint, head: tuple[str, ...], features: str | FeatureFunction | None
) -> FeatureExtractor:
    """Take the features of `model` at the point where the source statistics took them."""
    if callable(features):
        given, function = FeaturePoint(CALLABLE), features
    else:
        given, function = (point if features is None else _named_output(model, features)), None
    if given != point:
        raise ValueError(f"The source statistics were fitted on features at {str(point)!r}, not at {str(given)!r}.")
    if point.kind == CALLABLE and function is None:
        raise ValueError("The source statistics were fitted with a callable; pass the same one as features=….")
    return FeatureExtractor(model, point, function, head)


@contextmanager
def _unchanged(x: Batch) -> Iterator[None]:
    """Raise if a batch is changed inside: it is run through the classifier more than once."""
    tensors = [value for value in tensors_of(x).values() if not value.is_inference()]
    versions = [value._version for value in tensors]
    yield
    if [value._version for value in tensors] != versions:
        raise ValueError(
            "The classifier changes its input in place, and would see something else the next time. "
            "Let it work on a copy, e.g. `x = x - mean` instead of `x -= mean`."
        )


@contextmanager
def _recording(module: nn.Module, kind: str, seen: list[Any]) -> Iterator[None]:
    """While open, note what goes into (or comes out of) a module."""
    if kind == "input":
        before = temporary(lambda _, args, kwargs: seen.append(first_argument(args, kwargs)))
        handle = module.register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = module.register_forward_hook(temporary(lambda _, __, output: seen.append(output)))
    try:
        yield
    finally:
        handle.remove()


def _logits(output: Any) -> Tensor:
    """Return the logits of a plain classifier, or of one that answers with a record (`.logits`)."""
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        got = f"a tensor of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(output).__name__
        raise ValueError(f"The classifier must return logits of shape (batch, classes), got {got}.{_way_out(output)}")
    return logits


def _way_out(output: Any) -> str:
    """Say how to use a classifier that answers with more than its logits."""
    if isinstance(output, Tensor):
        return ""
    return (
        " Wrap it in a module that returns the logits alone, e.g. `class Logits(nn.Module)` with `return "
        "self.model(x)[0]`, or pass features= a callable that returns (features, logits)."
    )


def _one_vector_each(features: Any, where: str) -> Tensor:
    if not isinstance(features, Tensor) or features.dim() < 2 or features[0].numel() != features.shape[1]:
        got = type(features).__name__
        if isinstance(features, Tensor):
            got = f"shape ({', '.join(map(str, ('batch', *features.shape[1:])))})"
        raise ValueError(
            f"Features at {where!r} must be one vector a sample, shape (batch, D), got {got}. "
            "Name a module behind the pooling, or pass a callable that pools."
        )
    return features.flatten(1)


def _named_output(model: nn.Module, name: str) -> FeaturePoint:
    names = [known for known, _ in model.named_modules() if known]
    if name not in names:
        raise ValueError(f"{type(model).__name__} has no module {name!r}. Its modules: {', '.join(names)}.")
    return FeaturePoint("output", name)


@dataclass(frozen=True)
class _Call:
    """One call of a module while the classifier ran; `started` and `ended` are positions in time."""

    name: str
    module: nn.Module
    started: int
    ended: int
    inputs: Any
    output: Any

    def classifies(self, num_classes: int) -> bool:
        """Whether this is a linear layer from one vector a sample to the classes."""
        return (
            isinstance(self.module, nn.Linear)
            and isinstance(self.inputs, Tensor)
            and self.inputs.dim() == 2
            and tuple(self.output.shape) == (len(self.inputs), num_classes)
        )

    def gives_vectors(self) -> bool:
        """Whether its output could be the features."""
        output = self.output
        return isinstance(output, Tensor) and output.dim() >= 2 and output[0].numel() == output.shape[1]


def _watch(model: nn.Module, x: Batch) -> list[_Call]:
    """Run the model on `x` and list the calls of its modules, in the order in which they ended."""
    clock = itertools.count()
    open_calls: dict[nn.Module, int] = {}
    calls: list[_Call] = []

    def start(module: nn.Module, _: tuple[Any, ...]) -> None:
        open_calls[module] = next(clock)

    def end(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        calls.append(_Call(name, module, open_calls[module], next(clock), first_argument(args, kwargs), output))

    handles = []
    for name, module in model.named_modules():
        if name:
            handles.append(module.register_forward_pre_hook(start))
            handles.append(module.register_forward_hook(partial(end, name), with_kwargs=True))
    try:
        with torch.no_grad():
            call(model, x)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _behind(calls: list[_Call], moment: int) -> tuple[str, ...]:
    return tuple(call.name for call in calls if call.started >= moment)


def _candidates(calls: list[_Call]) -> str:
    vectors = [
        f"{call.name} ({type(call.module).__name__}, {call.output.shape[1]} numbers)"
        for call in calls
        if call.gives_vectors()
    ]
    return "Candidates: " + ("; ".join(vectors) if vectors else "none, no module gives one vector a sample") + "."
