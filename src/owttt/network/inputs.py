"""Batches as people have them: a tensor, or several named ones (`{"pixel_values": …}`, the Hugging Face habit)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, final

import torch
from torch import Tensor, nn

LABELS: Final = ("labels", "label")
"""What labels are called in a batch of named tensors."""


@final
class Fields:
    """Named tensors of one batch, which are sliced, moved and counted together like one tensor."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        if not tensors:
            raise ValueError("Expected a batch with at least one named tensor, got an empty one.")
        wrong = {name: type(value).__name__ for name, value in tensors.items() if not isinstance(value, Tensor)}
        if wrong:
            raise TypeError(f"Expected a batch of named tensors, got {wrong}.")
        lengths = {name: len(value) if value.dim() else 0 for name, value in tensors.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"Expected as many samples under every name, got {lengths}.")
        self.tensors = dict(tensors)

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, chosen: Any) -> Fields:
        return Fields({name: value[chosen] for name, value in self.tensors.items()})

    def own(self) -> Fields:
        """Return the tensors without graph and out of inference mode."""
        return Fields({name: own(value) for name, value in self.tensors.items()})

    def clone(self) -> Fields:
        """Return a copy."""
        return Fields({name: value.clone() for name, value in self.tensors.items()})

    def to(self, device: torch.device | str) -> Fields:
        """Return the tensors on a device."""
        return Fields({name: value.to(device) for name, value in self.tensors.items()})


Batch = Tensor | Fields


def own(x: Any) -> Any:
    """Return a batch cut off from the caller: no graph, no inference mode."""
    if isinstance(x, Fields):
        return x.own()
    return x.clone() if x.is_inference() else x.detach()


def as_batch(x: Any) -> Any:
    """Return a tensor as it is, and a mapping of tensors as `Fields`; labels among them are left out, unseen."""
    if isinstance(x, Mapping):
        return Fields({name: value for name, value in x.items() if name not in LABELS})
    return x


def as_pair(batch: Any) -> tuple[Any, Any]:
    """Return inputs and labels of a labeled batch: a pair, or named tensors with `labels` among them."""
    if isinstance(batch, Mapping):
        labels = next((batch[name] for name in LABELS if name in batch), None)
        return as_batch(batch), labels
    pair = tuple(batch) if isinstance(batch, tuple | list) else ()
    if len(pair) != 2:
        raise ValueError(
            f"The loader must yield pairs (x, y) of tensors, or named tensors with labels; got {type(batch).__name__}."
        )
    return as_batch(pair[0]), pair[1]


def call(model: nn.Module, x: Any) -> Any:
    """Run a model on a batch; named tensors go to arguments of these names, or else as one dictionary."""
    if not isinstance(x, Fields):
        return model(x)
    parameters = inspect.signature(model.forward).parameters
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return model(**x.tensors) if free or set(x.tensors) <= set(parameters) else model(x.tensors)


def first_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a module was called with first, by position or by name."""
    return next(iter((*args, *kwargs.values())), None)


def with_first_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the same arguments with another first one."""
    return ((value, *args[1:]), kwargs) if args else ((), {**kwargs, next(iter(kwargs)): value})


def tensors_of(x: Batch) -> dict[str, Tensor]:
    """Return the tensors of a batch by name; a lone one has none."""
    return x.tensors if isinstance(x, Fields) else {"": x}
