"""What the corruptions of clouds look like, on solids that are made up: a page may show them whatever data it is of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

from owttt.bench.records import RunRecord
from owttt.bench.report.embedded import picture_source

NUMBERS: Final = (55, 96, 52)
"""A chair, a table and a cone."""


@final
@dataclass(frozen=True)
class Corrupted:
    """A few clouds under one corruption."""

    title: str
    sources: list[str]


def cloud_corruptions(runs: Iterable[RunRecord]) -> list[Corrupted]:
    """Return clouds under every corruption, as severe as the runs met some; nothing if they met none."""
    from owttt.data.corruptions.clouds import CLOUD_CORRUPTIONS  # noqa: PLC0415  (needs torch)

    streams = [run["spec"]["stream"] for run in runs]
    severities = {stream["severity"] for stream in streams if {*stream["corruptions"]} & {*CLOUD_CORRUPTIONS}}
    shown = [_shown(name, severity) for severity in sorted(severities) for name in CLOUD_CORRUPTIONS]
    return [_shown(), *shown] if shown else []


def _shown(name: str = "", severity: int = 0) -> Corrupted:
    from owttt.data.corruptions.clouds import corrupt_clouds  # noqa: PLC0415  (needs torch)
    from owttt.data.generated.solids import Solids  # noqa: PLC0415
    from owttt.data.modalities import CLOUDS  # noqa: PLC0415

    clouds = Solids().batch(NUMBERS)
    if name:
        clouds = corrupt_clouds(clouds, name, severity, indices=NUMBERS)
    title = f"{name.replace('_', ' ')} {severity}" if name else "clean"
    return Corrupted(title, [picture_source(CLOUDS.picture(cloud)) for cloud in clouds])
