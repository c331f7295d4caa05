"""Pictures within the page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from torch import Tensor

_KINDS: Final = {".svg": "image/svg+xml", ".png": "image/png"}


@final
@dataclass(frozen=True)
class Figure:
    """A figure for light pages, and the one for dark pages, empty where there is none."""

    light: str
    dark: str = ""


def read_figure(folder: Path, name: str) -> Figure | None:
    """Return a figure of a results folder, as SVG or PNG, whichever is smaller; None if it was not drawn."""
    drawn = [path.read_bytes() for kind in _KINDS if (path := folder / f"{name}{kind}").is_file()]
    if not drawn:
        return None
    light = min(drawn, key=len)
    dark = folder / f"{name}-dark.svg"
    return Figure(_source(light), _source(dark.read_bytes()) if dark.is_file() else "")


def picture_source(picture: Tensor) -> str:
    """Return an RGB image `(3, H, W)` in uint8 as an address that holds it."""
    from PIL import Image  # noqa: PLC0415  (pages without pictures do without)

    file = io.BytesIO()
    Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy()).save(file, "png", optimize=True)
    return _source(file.getvalue())


def _source(content: bytes) -> str:
    kind = _KINDS[".png" if content.startswith(b"\x89PNG") else ".svg"]
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
