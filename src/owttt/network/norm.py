"""Normalization layers of a network at test time: which statistics they use, which parameters they have.

Both contexts work on any subclass of torch's BatchNorm, leave everything else in evaluation mode (no dropout, so
adaptation is deterministic) and fall back to the running statistics in a layer that sees one value a channel, whose
variance would be zero. Where passes are shared with other processes (`network.ranks`), a batch's statistics are those
of all parts: a layer is then given what is normalized already, and a mean of 0 and a variance of 1 to normalize with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from owttt._utils.state import temporary
from owttt.functional import wide
from owttt.network.inputs import first_argument, with_first_argument
from owttt.network.ranks import Ranks

LAST = (nn.LayerNorm, nn.RMSNorm)
"""Layers that are given channels in the last dimension."""
_NORMALIZATIONS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, *LAST)


def batch_norms(network: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorm layers that keep running statistics."""
    return [m for m in network.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]


def normalizations(network: nn.Module) -> list[nn.Module]:
    """Return all normalization layers."""
    return [module for module in network.modules() if isinstance(module, _NORMALIZATIONS)]


def affine_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Return scale and shift of all normalization layers."""
    return [parameter for layer in normalizations(network) for parameter in layer.parameters(recurse=False)]


@contextmanager
def moving_statistics(network: nn.Module, pace: float = 1.0) -> Iterator[None]:
    """Normalize with the statistics of the batch and move the running ones towards them (BatchNorm's train mode).

    They move by `pace` times the layer's momentum.
    """

    def before(layer: nn.Module, x: Tensor) -> Tensor | None:
        ranks = sharing(network)
        if ranks is None or not isinstance(layer, _BatchNorm):
            layer.training = values_per_channel(x) > 1
            return None
        mean, variance, number = ranks.moments(x)
        if number < 2:
            return None
        _move(layer, mean.detach(), variance.detach() * number / (number - 1))
        return _normalized(layer, x, mean, variance)

    layers = batch_norms(network)
    momenta = [layer.momentum for layer in layers]
    with own_statistics(layers) as put_back, _hooked(layers, before, put_back):
        try:
            for layer in layers:
                layer.momentum = None if layer.momentum is None else pace * layer.momentum
            yield
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.training, layer.momentum = False, momentum


@contextmanager
def batch_statistics(network: nn.Module, share: float = 1.0) -> Iterator[None]:
    """Normalize with `(1 - share)·source + share·batch` statistics; the running ones stay as they are."""

    def before(layer: nn.Module, x: Tensor) -> Tensor | None:
        ranks = sharing(network)
        if not isinstance(layer, _BatchNorm) or (ranks is None and values_per_channel(x) < 2):
            return None
        if share < 1:
            layer.running_mean, layer.running_var = _mixed(network, layer, x, share)
        elif ranks is None:
            layer.running_mean, layer.running_var = None, None
        else:
            mean, variance, number = ranks.moments(x)
            return _normalized(layer, x, mean, variance) if number > 1 else None
        return None

    layers = batch_norms(network)
    with own_statistics(layers) as put_back, _hooked(layers, before, put_back):
        yield


@contextmanager
def own_statistics(layers: list[_BatchNorm]) -> Iterator[Callable[..., None]]:
    """Give a function that puts a layer's own statistics back in place; at the end this is done for all."""
    own = {layer: (layer.running_mean, layer.running_var) for layer in layers}

    def put_back(layer: nn.Module, *_: object) -> None:
        if isinstance(layer, _BatchNorm):
            layer.running_mean, layer.running_var = own[layer]

    try:
        yield put_back
    finally:
        for layer in layers:
            put_back(layer)


def sharing(network: nn.Module) -> Ranks | None:
    """Return the processes of which each has its own rows of the pass that is under way, if there are others."""
    ranks: Ranks | None = getattr(network, "ranks", None)
    return ranks if ranks is not None and ranks.rows is not None else None


def batch_moments(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of every channel that a layer is given, over all processes that share the pass."""
    ranks = sharing(network)
    if ranks is not None:
        return ranks.moments(x)[:2]
    variance, mean = torch.var_mean(wide(x).transpose(0, 1).flatten(1), dim=1, correction=0)
    return mean, variance


def _normalized(layer: _BatchNorm, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return what a layer is given, normalized already, and let it normalize with a mean of 0 and a variance of 1."""
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    assert layer.running_mean is not None
    layer.running_mean = torch.zeros_like(layer.running_mean)
    layer.running_var = torch.full_like(layer.running_mean, 1 - layer.eps)
    return ((x - mean.view(shape)) * (variance + layer.eps).rsqrt().view(shape)).to(x.dtype)


def _move(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move a layer's running statistics as torch does in train mode."""
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked += 1
    by = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    for running, now in ((layer.running_mean, mean), (layer.running_var, variance)):
        assert running is not None
        running.lerp_(now.to(running.dtype), by)


def values_per_channel(x: Tensor) -> int:
    """Return how many values of every channel a layer is given."""
    return x.numel() // x.shape[1]


def _mixed(network: nn.Module, layer: _BatchNorm, x: Tensor, share: float) -> tuple[Tensor, Tensor]:
    if layer.running_mean is None or layer.running_var is None:
        raise RuntimeError(f"{layer} has no running statistics to mix with.")
    mean, variance = (part.to(layer.running_mean.dtype) for part in batch_moments(network, x.detach()))
    return torch.lerp(layer.running_mean, mean, share), torch.lerp(layer.running_var, variance, share)


@contextmanager
def _hooked(
    layers: list[_BatchNorm],
    before: Callable[[nn.Module, Tensor], Tensor | None],
    after: Callable[..., None],
) -> Iterator[None]:
    """While open, show `before` what layers are given, and let it give them something else."""

    @temporary
    def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        instead = before(layer, first_argument(args, kwargs))
        return None if instead is None else with_first_argument(args, kwargs, instead)

    handles = [layer.register_forward_pre_hook(hook, with_kwargs=True) for layer in layers]
    handles += [layer.register_forward_hook(temporary(after)) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def keep_group_norm_alive(network: nn.Module) -> None:
    """Let the input of every GroupNorm need a gradient, in place.

    Where it needs none, because all layers before are frozen, the backward pass of a GroupNorm in channels_last writes
    to no memory (torch 2.13.0, CPU), and the process dies.
    """
    for module in network.modules():
        if isinstance(module, nn.GroupNorm):
            module.register_forward_pre_hook(_with_gradient, with_kwargs=True)


def _with_gradient(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    del module
    x = first_argument(args, kwargs)
    if torch.is_grad_enabled() and not x.requires_grad:
        x.requires_grad_()
