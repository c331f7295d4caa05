"""Where digits matter: similarities, variances and inverses are never computed in half precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import Tensor


def wide(values: Tensor) -> Tensor:
    """Return half-precision values as float32, others as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def floating(values: Tensor) -> Tensor:
    """Return integers as floating point numbers, others as they are."""
    return values if values.is_floating_point() else values.to(torch.get_default_dtype())


def widest(device: torch.device) -> torch.dtype:
    """Return the widest real type of a device (Apple's has no float64)."""
    return torch.float32 if device.type == "mps" else torch.float64


@contextmanager
def fresh_autocast(device: torch.device) -> Iterator[None]:
    """Keep the caller's autocast but not its cache of converted weights, which a step would leave out of date."""
    if not torch.is_autocast_enabled(device.type):
        yield
        return
    with torch.autocast(device.type, torch.get_autocast_dtype(device.type), cache_enabled=False):
        yield


def autocasting() -> AbstractContextManager[None]:
    """Return a context in which autocast is as it is now, for another thread to enter."""
    kinds = [kind for kind in ("cpu", "cuda", "mps", "xpu") if torch.is_autocast_enabled(kind)]
    modes = [(kind, torch.get_autocast_dtype(kind)) for kind in kinds]

    @contextmanager
    def as_now() -> Iterator[None]:
        with ExitStack() as all_kinds:
            for kind, dtype in modes:
                all_kinds.enter_context(torch.autocast(kind, dtype, cache_enabled=False))
            yield

    return as_now()


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Suspend the caller's autocast: inside, matrix products keep the type of their inputs."""
    if not torch.is_autocast_enabled(device.type):
        yield
        return
    with torch.autocast(device.type, enabled=False):
        yield
