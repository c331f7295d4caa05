"""Files that are written whole or not at all; needs no torch."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

SEAL: Final = "sha256"
"""The field of a JSON file that holds the checksum of all others."""
_ABANDONED: Final = 24 * 3600.0
"""Seconds after which a part of a file is nobody's any more."""
_HEX: Final = re.compile(r"[0-9a-f]{64}")
"""What the first value of a file looks like whose checksum has lost its name."""
_PART: Final = re.compile(r"\.[0-9a-f]{8}\.part$")


class DamagedFileError(ValueError):
    """A file whose content is not what was written."""


def write_bytes(path: Path, payload: bytes) -> None:
    """Write a file atomically: a reader finds the old file or the new one, never a part.

    Raises:
        OSError: It cannot be written; the error names the file, which the system's own of a full disk does not.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(
            error.errno, f"{error.strerror or error}; {len(payload):,} bytes were to be written", str(path)
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_parts(folder: Path) -> int:
    """Remove what killed processes left half written in a folder a day ago or before; return how many files."""
    removed = 0
    for path in folder.glob("*.part"):
        with suppress(OSError):
            if _PART.search(path.name) and time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
                removed += 1
    return removed


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, its checksum first; what JSON cannot hold (NaN, infinity) becomes null."""
    if SEAL in content:
        raise ValueError(f"{path}: {SEAL!r} is the name of the checksum; call it something else.")
    held = json.loads(json_text(content))
    write_bytes(path, json_text({SEAL: _seal(held), **held}).encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote, or a JSON object without a checksum that somebody else (or an older owttt) did.

    Raises:
        DamagedFileError: It is no JSON object, or not what was written; the error names the file.
        FileNotFoundError: It is not there.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path}: not JSON ({error}); it is truncated or damaged.") from error
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path}: JSON, but no object.")
    seal = content.pop(SEAL, None)
    first = next(iter(content.values()), None)
    broken = isinstance(first, str) and _HEX.fullmatch(first) and seal is None
    if broken or (seal is not None and seal != _seal(content)):
        raise DamagedFileError(f"{path}: its contents do not match their checksum; it was damaged, or edited by hand.")
    return content


def json_text(content: Mapping[str, Any]) -> str:
    """Return JSON as files hold it."""
    return json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def finite(value: Any) -> Any:
    """Return what JSON can hold: lists for tuples, None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
