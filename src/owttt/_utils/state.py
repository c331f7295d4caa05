"""All that changes while adapting, as one flat dictionary of tensors: modules and the optimizer's memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

_OPTIMIZER: Final = "optimizer."
_TEMPORARY: Final = "_owttt_temporary"
_Hook = TypeVar("_Hook", bound=Callable[..., Any])


def collect(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    """Return references to every parameter, buffer and optimizer tensor.

    Here and below, methods of `nn.Module` are called by that name: an adapter's own wait for the learning that this may
    be a part of.
    """
    tensors: dict[str, Tensor] = dict(nn.Module.state_dict(module))
    if optimizer is not None:
        for index, memory in optimizer.state_dict()["state"].items():
            tensors |= {
                f"{_OPTIMIZER}{index}.{name}": value for name, value in memory.items() if isinstance(value, Tensor)
            }
    return tensors


def snapshot(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    """Return a copy of the whole state."""
    return {name: tensor.detach().clone() for name, tensor in collect(module, optimizer).items()}


class Shadow:
    """A copy of the state that is made again and again, into the same memory."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def take(self, module: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
        """Copy the state as it is now, and return the copy; it holds until the next one is taken."""
        live = {name: tensor.detach() for name, tensor in collect(module, optimizer).items()}
        alike = self._tensors.keys() == live.keys() and all(
            (old.shape, old.dtype, old.device) == (live[name].shape, live[name].dtype, live[name].device)
            for name, old in self._tensors.items()
        )
        if not alike:
            self._tensors = {name: tensor.clone() for name, tensor in live.items()}
        elif live:
            torch._foreach_copy_([self._tensors[name] for name in live], list(live.values()))
        return self._tensors


def temporary(hook: _Hook) -> _Hook:
    """Mark a hook as one that is there during a call only; should an interruption leave it behind, it is removed."""
    setattr(hook, _TEMPORARY, True)
    return hook


class Mechanics:
    """What of modules is no tensor and must come back too: hooks, modes, momenta, buffers that a context put aside.

    An interruption may come between registering a hook and the `try` that would remove it. Hooks that somebody else
    registered before a call, seen with `see_hooks`, stay.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parts = [(part, part.training) for part in module.modules()]
        self.see_hooks()
        self._buffers = [(part, name, full) for part, name, full in _buffers(module)]
        self._momenta = [(part, part.momentum) for part in module.modules() if isinstance(part, _BatchNorm)]

    def see_hooks(self) -> None:
        """Note which hooks there are, nothing being under way."""
        self._hooks = {hooks_id: set(hooks) for hooks_id, hooks, _ in self._all_hooks()}

    def remove_temporary(self) -> None:
        """Remove hooks that a call left behind."""
        for _, hooks, options in self._all_hooks():
            _remove(hooks, options, [key for key, hook in hooks.items() if hasattr(hook, _TEMPORARY)])

    def _all_hooks(self) -> Iterator[tuple[tuple[int, str], dict[int, Any], list[dict[int, Any]]]]:
        """Yield the hooks of every part, named by its place, and what is kept of the options of each."""
        for place, (part, _) in enumerate(self._parts):
            yield (place, "before"), part._forward_pre_hooks, [part._forward_pre_hooks_with_kwargs]
            after = [part._forward_hooks_with_kwargs, part._forward_hooks_always_called]
            yield (place, "after"), part._forward_hooks, after

    def put_back(self, tensors: dict[str, Tensor]) -> None:
        """Put everything back; `tensors` have the values of buffers that are gone."""
        for part, mode in self._parts:
            part.training = mode
        self.remove_temporary()
        for hooks_id, hooks, options in self._all_hooks():
            _remove(hooks, options, [key for key in hooks if key not in self._hooks[hooks_id]])
        for layer, momentum in self._momenta:
            layer.momentum = momentum
        for part, name, full in self._buffers:
            if part._buffers.get(name) is None:
                part._buffers[name] = tensors[full].clone()


def _remove(hooks: dict[int, Any], options: list[dict[int, Any]], keys: list[int]) -> None:
    for key in keys:
        del hooks[key]
        for option in options:
            option.pop(key, None)


def _buffers(module: nn.Module) -> list[tuple[nn.Module, str, str]]:
    """Return the persistent buffers that a module has: the part, their name in it, and in the whole."""
    return [
        (part, name, f"{prefix}.{name}" if prefix else name)
        for prefix, part in module.named_modules()
        for name, buffer in part._buffers.items()
        if buffer is not None and name not in part._non_persistent_buffers_set
    ]


def not_finite(tensors: dict[str, Tensor]) -> list[str]:
    """Return the names of tensors that hold NaN or infinity."""
    return sorted(
        name for name, value in tensors.items() if value.is_floating_point() and not bool(value.isfinite().all())
    )


def check(
    tensors: dict[str, Tensor], module: nn.Module, origin: str, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Raise a ValueError unless `tensors` would fit, the optimizer's too, and all are finite; nothing is changed."""
    expected = {name: (value.shape, value.dtype) for name, value in nn.Module.state_dict(module).items()}
    found = {name: (value.shape, value.dtype) for name, value in tensors.items() if not name.startswith(_OPTIMIZER)}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise ValueError(
            f"{origin}: {len(wrong)} tensors are missing, unknown or of another shape or type: {wrong[:5]}."
        )
    misfits = [
        name for name, value in tensors.items() if name.startswith(_OPTIMIZER) and not _fits(name, value, optimizer)
    ]
    if misfits:
        raise ValueError(f"{origin}: {len(misfits)} tensors of the optimizer do not fit: {sorted(misfits)[:5]}.")
    broken = not_finite(tensors)
    if broken:
        raise ValueError(f"{origin}: {len(broken)} tensors hold NaN or infinity: {broken[:5]}.")


def _fits(name: str, value: Tensor, optimizer: torch.optim.Optimizer | None) -> bool:
    """Whether a tensor of the optimizer belongs to one of its parameters: of that shape, or a single number."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]] if optimizer is not None else []
    index, _, part = name.removeprefix(_OPTIMIZER).partition(".")
    if not index.isdigit() or int(index) >= len(parameters) or not part:
        return False
    return value.dim() == 0 or value.shape == parameters[int(index)].shape


def load(tensors: dict[str, Tensor], module: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """Set the whole state to a copy of what `snapshot` returned."""
    own = {name: value for name, value in tensors.items() if not name.startswith(_OPTIMIZER)}
    nn.Module.load_state_dict(module, own, strict=True)
    if optimizer is None:
        return
    memory: dict[int, dict[str, Any]] = defaultdict(dict)
    for key, value in tensors.items():
        if key.startswith(_OPTIMIZER):
            index, name = key.removeprefix(_OPTIMIZER).split(".", 1)
            memory[int(index)][name] = value.clone()
    optimizer.load_state_dict({"state": dict(memory), "param_groups": optimizer.state_dict()["param_groups"]})
    optimizer.zero_grad()
