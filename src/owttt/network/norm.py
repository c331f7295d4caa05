"""Normalization layers of a network at test time: which statistics they use, which parameters they have.

Both contexts work on any subclass of torch's BatchNorm, leave everything else in evaluation mode (no dropout, so
adaptation is deterministic) and fall back to the running statistics in a layer that sees one value a channel, whose
variance would be zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

_NORMALIZATIONS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


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

    def before(layer: nn.Module, args: tuple[Any, ...]) -> None:
        layer.training = values_per_channel(args[0]) > 1

    layers = batch_norms(network)
    momenta = [layer.momentum for layer in layers]
    with _hooked(layers, before):
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
    layers = batch_norms(network)
    source = {layer: (layer.running_mean, layer.running_var) for layer in layers}

    def before(layer: nn.Module, args: tuple[Any, ...]) -> None:
        x = args[0]
        if not isinstance(layer, _BatchNorm) or values_per_channel(x) < 2:
            return
        layer.running_mean, layer.running_var = (None, None) if share == 1 else _mixed(layer, x, share)

    def after(layer: nn.Module, *_: object) -> None:
        if isinstance(layer, _BatchNorm):
            layer.running_mean, layer.running_var = source[layer]

    with _hooked(layers, before, after):
        try:
            yield
        finally:
            for layer in layers:
                after(layer)


def values_per_channel(x: Tensor) -> int:
    """Return how many values of every channel a layer is given."""
    return x.numel() // x.shape[1]


def _mixed(layer: _BatchNorm, x: Tensor, share: float) -> tuple[Tensor, Tensor]:
    if layer.running_mean is None or layer.running_var is None:
        raise RuntimeError(f"{layer} has no running statistics to mix with.")
    channels = x.detach().transpose(0, 1).flatten(1).to(layer.running_mean.dtype)
    variance, mean = torch.var_mean(channels, dim=1, correction=0)
    return torch.lerp(layer.running_mean, mean, share), torch.lerp(layer.running_var, variance, share)


@contextmanager
def _hooked(
    layers: list[_BatchNorm],
    before: Callable[[nn.Module, tuple[Any, ...]], None],
    after: Callable[..., None] | None = None,
) -> Iterator[None]:
    handles = [layer.register_forward_pre_hook(before) for layer in layers]
    if after is not None:
        handles += [layer.register_forward_hook(after) for layer in layers]
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
            module.register_forward_pre_hook(_with_gradient)


def _with_gradient(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    del module
    if torch.is_grad_enabled() and not inputs[0].requires_grad:
        inputs[0].requires_grad_()
