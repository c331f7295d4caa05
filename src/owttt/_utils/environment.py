"""What a number depends on besides its configuration."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import numpy as np
import torch


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
