"""Files that are written whole or not at all; needs no torch."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_bytes(path: Path, payload: bytes) -> None:
    """Write a file atomically: a reader finds the old file or the new one, never a part."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically; what JSON cannot hold (NaN, infinity) becomes null."""
    write_bytes(path, json_text(content).encode())


def json_text(content: Mapping[str, Any]) -> str:
    """Return JSON as files hold it."""
    return json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """Return what JSON can hold: lists for tuples, None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
