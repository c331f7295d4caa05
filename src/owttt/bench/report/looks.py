"""What the corruptions of clouds look like, on solids that are made up: a page may show them whatever data it is of."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

from torch import Tensor

from owttt.bench.outcome import Record
from owttt.bench.report.gallery import embedded
from owttt.data.corruptions.clouds import CLOUD_CORRUPTIONS, corrupt_clouds
from owttt.data.generated.solids import Solids

NUMBERS: Final = (55, 96, 52)
"""A chair, a table and a cone."""


def looks(runs: Iterable[Record]) -> str:
    """Return a few clouds under every corruption, as severe as the runs met some, or nothing if they met none."""
    streams = [run["spec"]["stream"] for run in runs]
    severities = {stream["severity"] for stream in streams if {*stream["corruptions"]} & {*CLOUD_CORRUPTIONS}}
    if not severities:
        return ""
    clouds = Solids().batch(NUMBERS)
    figures = [_figure("clean", clouds)]
    for severity in sorted(severities):
        for name in CLOUD_CORRUPTIONS:
            corrupted = corrupt_clouds(clouds, name, severity, indices=NUMBERS)
            figures.append(_figure(f"{name.replace('_', ' ')} {severity}", corrupted))
    return (
        "<h2 id=looks>Clouds under their corruptions</h2><p>Solids that are made up, as a network gets them.</p>"
        f"<div class=looks>{''.join(figures)}</div>"
    )


def _figure(title: str, clouds: Iterable[Tensor]) -> str:
    pictures = "".join(embedded(cloud, title) for cloud in clouds)
    return f"<figure>{pictures}<figcaption>{html.escape(title)}</figcaption></figure>"
