"""An adapter's state in a file, and what an adapter has to have in common with it to take it over."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final, cast

from torch import Tensor

from owttt._utils import state
from owttt._utils import tensors as tensor_files
from owttt.detector import Evidence, NamedScore
from owttt.source import SourceStats

KIND: Final = "adapter state"
EXPLAINED: Final = "detector.explained."
"""In the names of tensors that states from before there were strangers do not have."""
RENAMED: Final = {"method.present": "method.in_use.value"}
GONE: Final = ("promoted.variances",)
"""What tensors were called in earlier states, and those that nobody needs any more."""


def writer(path: str | Path, tensors: dict[str, Tensor], config: Mapping[str, Any]) -> Callable[[], object]:
    """Return what writes a state to a file, atomically.

    Raises:
        FloatingPointError: A tensor of the state is not finite; nothing is to be written.
    """
    broken = state.not_finite(tensors)
    if broken:
        raise FloatingPointError(f"This state is not worth keeping: {broken[:5]} are not finite. Call reset().")
    return lambda: tensor_files.write(path, tensors, {"kind": KIND, **config})


def read(path: str | Path, config: Mapping[str, Any], initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a state; what an earlier version did not write is as in the beginning.

    Raises:
        ValueError: The adapter that wrote it was made differently.
    """
    tensors, description = tensor_files.read(path, KIND)
    theirs = {name: value for name, value in description.items() if name != "kind"}
    mine = json.loads(json.dumps(config))
    different = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
    if different:
        pairs = "; ".join(f"{name}: file {theirs.get(name)!r}, here {mine.get(name)!r}" for name in different)
        raise ValueError(f"{path}: the state of an adapter made differently. {pairs}.")
    named = {RENAMED.get(name, name): value for name, value in tensors.items() if name not in GONE}
    return {name: value for name, value in initial.items() if EXPLAINED in name} | named


def name_of(plug: Callable[..., Tensor], source: SourceStats) -> Any:
    """Describe a score or threshold for the record; the statistics may be part of what it is."""
    if isinstance(plug, NamedScore):
        return plug.describe(source)
    if isinstance(plug, Evidence):
        return plug.describe()
    if is_dataclass(plug):
        return f"{type(plug).__name__}({', '.join(f'{k}={v}' for k, v in asdict(cast(Any, plug)).items())})"
    return getattr(plug, "__qualname__", type(plug).__qualname__)
