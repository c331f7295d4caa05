"""What a number depends on besides its configuration, and files of JSON that are written whole or not at all."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from owttt import storage


def environment() -> dict[str, Any]:
    """Return the versions and settings that results are recorded with."""
    return {
        "owttt": importlib.metadata.version("owttt"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically; what JSON cannot hold (NaN, infinity) becomes null."""
    text = json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False)
    storage.write_bytes(path, (text + "\n").encode())


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
