"""What the corruptions of clouds look like, on solids that are made up: a page may show them whatever data it is of."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

from torch import Tensor

from owttt.bench.manifest import Record
from owttt.bench.report.gallery import embedded
from owttt.data.cloud_corruptions import CLOUD_CORRUPTIONS, corrupt_clouds
from owttt.data.solids import Solids

NUMBERS: Final = (55, 96, 52)
"""A chair, a table and a cone."""


def looks(runs: Iterable[Record]) -> str:
    """Return a few clouds under every corruption that the runs met, or nothing if they met none of clouds."""
    met = {(look, run["spec"]["stream"]["severity"]) for run in runs for look in run["spec"]["stream"]["corruptions"]}
    shown = sorted((severity, CLOUD_CORRUPTIONS.index(look)) for look, severity in met if look in CLOUD_CORRUPTIONS)
    if not shown:
        return ""
    clouds = Solids().batch(NUMBERS)
    figures = [_figure("clean", clouds)]
    for severity, place in shown:
        name = CLOUD_CORRUPTIONS[place]
        corrupted = corrupt_clouds(clouds, name, severity, indices=NUMBERS)
        figures.append(_figure(f"{name.replace('_', ' ')} {severity}", corrupted))
    return f"<h2 id=looks>Clouds under their corruptions</h2><div class=looks>{''.join(figures)}</div>"


def _figure(title: str, clouds: Iterable[Tensor]) -> str:
    pictures = "".join(embedded(cloud, title) for cloud in clouds)
    return f"<figure>{pictures}<figcaption>{html.escape(title)}</figcaption></figure>"
