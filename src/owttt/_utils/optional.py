"""Packages that only some files need."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, purpose: str, extra: str = "data") -> Any:
    """Import a module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{purpose} need {error.name}, which is not installed: pip install 'owttt[{extra}]'."
        ) from error
    except (ImportError, RuntimeError) as error:
        raise ImportError(f"{purpose} need {module}, which is installed and cannot be imported: {error}") from error
