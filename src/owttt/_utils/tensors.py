"""Tensors and their description in one safetensors file: written whole or not at all, verified when read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from owttt._utils.files import write_bytes

_DIGEST, _DESCRIPTION = "sha256", "description"


def digest(tensors: Iterable[tuple[str, Tensor]], description: str = "") -> str:
    """Return the SHA-256 of a description and of names, types, shapes and bytes, the same on every device."""
    total = hashlib.sha256(description.encode())
    for name, tensor in tensors:
        total.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def write(path: str | Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write atomically: a reader finds the old file or the new one, never a part."""
    path = Path(path)
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in sorted(tensors.items())}
    text = json.dumps(description, sort_keys=True)
    payload = safetensors.torch.save(copies, {_DIGEST: digest(copies.items(), text), _DESCRIPTION: text})
    write_bytes(path, payload)


def read(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write` wrote under the description's `kind`; a damaged or foreign file is a ValueError."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected one written by owttt holding {kind}.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a readable safetensors file ({error}); it is truncated or damaged.") from error
    if _DESCRIPTION not in metadata or _DIGEST not in metadata:
        raise ValueError(f"{path}: a safetensors file, but not one written by owttt.")
    if digest(tensors.items(), metadata[_DESCRIPTION]) != metadata[_DIGEST]:
        raise ValueError(f"{path}: its contents do not match their checksum; the file is damaged.")
    description: dict[str, Any] = json.loads(metadata[_DESCRIPTION])
    if description.get("kind") != kind:
        raise ValueError(f"{path}: holds {description.get('kind')!r}, expected {kind!r}.")
    return tensors, description
