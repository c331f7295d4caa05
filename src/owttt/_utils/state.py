"""All that changes while adapting, as one flat dictionary of tensors: modules and the optimizer's memory."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import torch
from torch import Tensor, nn

_OPTIMIZER: Final = "optimizer."


def collect(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    """Return references to every parameter, buffer and optimizer tensor."""
    tensors: dict[str, Tensor] = dict(module.state_dict())
    if optimizer is not None:
        for index, memory in optimizer.state_dict()["state"].items():
            tensors |= {
                f"{_OPTIMIZER}{index}.{name}": value for name, value in memory.items() if isinstance(value, Tensor)
            }
    return tensors


def snapshot(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    """Return a copy of the whole state."""
    return {name: tensor.detach().clone() for name, tensor in collect(module, optimizer).items()}


def check(tensors: dict[str, Tensor], module: nn.Module, origin: str) -> None:
    """Raise a ValueError unless `tensors` would fit; nothing is changed."""
    expected = {name: (value.shape, value.dtype) for name, value in module.state_dict().items()}
    found = {name: (value.shape, value.dtype) for name, value in tensors.items() if not name.startswith(_OPTIMIZER)}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise ValueError(
            f"{origin}: {len(wrong)} tensors are missing, unknown or of another shape or type: {wrong[:5]}."
        )


def load(tensors: dict[str, Tensor], module: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """Set the whole state to a copy of what `snapshot` returned."""
    own = {name: value for name, value in tensors.items() if not name.startswith(_OPTIMIZER)}
    module.load_state_dict(own, strict=True)
    if optimizer is None:
        return
    memory: dict[int, dict[str, Any]] = defaultdict(dict)
    for key, value in tensors.items():
        if key.startswith(_OPTIMIZER):
            index, name = key.removeprefix(_OPTIMIZER).split(".", 1)
            memory[int(index)][name] = value.clone()
    optimizer.load_state_dict({"state": dict(memory), "param_groups": optimizer.state_dict()["param_groups"]})
    optimizer.zero_grad()
