"""What an adapter takes: batches like those of the source data. Everything else is refused, before anything changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from owttt.network.features import FeatureExtractor
from owttt.network.inputs import Batch, Fields, as_batch, own, tensors_of
from owttt.source import SourceStats


def taken(x: Any, network: FeatureExtractor, source: SourceStats) -> tuple[Batch, slice]:
    """Return a batch that was checked and cut off from the caller, and which of its rows are the caller's.

    Where several processes share a stream, the batch is that of all of them, one's rows after the other's; a process
    may have none. If one refuses its part, all raise.
    """
    ranks = network.ranks
    if ranks is None:
        return own(checked_batch(x, network, source)), slice(None)
    part, wrong = None, None
    try:
        part = own(checked_batch(x, network, source, least=0))
    except Exception as error:  # whatever it is, nobody must wait for this rank
        wrong = error
    sizes = ranks.agree(0 if part is None else len(part), wrong)
    if part is None or not sum(sizes):
        raise ValueError("Expected at least one sample on one of the ranks, got empty batches on all of them.")
    start = sum(sizes[: ranks.rank])
    return ranks.joined(part, sizes), slice(start, start + sizes[ranks.rank])


def checked_batch(x: Any, network: FeatureExtractor, source: SourceStats, least: int = 1) -> Batch:
    """Return a batch if it is what the source data was like; names in the source's order, images in bytes as 0 … 1.

    Raises:
        ValueError: It has another shape, other fields, values that are not finite, or is on another device.
        TypeError: It is no dense tensor, or of another dtype.
    """
    x = as_batch(x)
    if not isinstance(x, Tensor | Fields):
        raise TypeError(f"Expected a batch as a torch.Tensor, or as named tensors, got {type(x).__name__}.")
    inputs, found = source.info.inputs, tensors_of(x)
    if inputs.keys() != found.keys():
        raise ValueError(f"Expected {_told(inputs)}, as the source data had, got {_told(found)}.")
    weights = next(network.parameters(), source.prototypes)
    for name, (shape, dtype) in inputs.items():
        _check_shape(found[name], shape, least)
        _check_values(found[name], getattr(torch, dtype), weights, network.model)
    if isinstance(x, Fields):
        return Fields({name: found[name] for name in inputs})
    bytes_taken = x.dtype == torch.uint8 and getattr(network.model, "takes_bytes", False)
    return x.to(weights.dtype) / 255 if bytes_taken else x


def _check_shape(x: Tensor, shape: tuple[int, ...], least: int) -> None:
    expected = ", ".join(map(str, shape))
    if x.layout != torch.strided:
        raise TypeError(f"Expected a dense batch, got one in {x.layout}; convert it with x.to_dense().")
    if x.dim() != len(shape) + 1 or tuple(x.shape[1:]) != tuple(shape):
        raise ValueError(f"Expected a batch of shape (B, {expected}), as the source data had, got {tuple(x.shape)}.")
    if len(x) < least:
        raise ValueError(f"Expected at least one sample, got an empty batch of shape {tuple(x.shape)}.")


def _check_values(x: Tensor, source_dtype: torch.dtype, weights: Tensor, model: nn.Module) -> None:
    if x.device != weights.device:
        raise ValueError(f"The adapter is on {weights.device}, the batch on {x.device}; move one of them.")
    needed = weights.dtype if source_dtype.is_floating_point else source_dtype
    either = getattr(model, "takes_bytes", False) and x.dtype in (torch.uint8, weights.dtype)
    mixed = x.is_floating_point() and torch.is_autocast_enabled(x.device.type)
    if x.dtype != needed and not mixed and not either:
        scaled = needed.is_floating_point and not x.is_floating_point()
        how = "scale it as in training, e.g. x.float() / 255" if scaled else f"convert it with x.to({needed})"
        raise TypeError(f"Expected a batch of {needed}, got {x.dtype}; {how}.")
    if x.is_floating_point() and not x.isfinite().all():
        bad = (~x.isfinite()).reshape(len(x), -1).any(dim=1).nonzero().flatten().tolist()
        raise ValueError(f"The batch holds NaN or Inf in {len(bad)} of {len(x)} samples: {bad[:10]}.")


def _told(names: Iterable[str]) -> str:
    """Say what a batch is made of."""
    return "one tensor" if list(names) == [""] else f"named tensors {sorted(names)}"
