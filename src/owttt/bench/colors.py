"""One color a method, the same in every picture."""

from __future__ import annotations

from typing import Final

COLORS: Final = {
    "test": "#b3b8be",
    "bn": "#7f868e",
    "tent": "#e0a43b",
    "shot": "#5aa469",
    "ttt++": "#b07cc6",
    "ttac": "#3f7fbf",
    "owttt": "#d6432f",
}
