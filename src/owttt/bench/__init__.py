"""Runs: a method on a stream, recorded in full; the paper's tables and figures made of them; pages of results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from owttt._utils.lazy import attributes

if TYPE_CHECKING:
    from owttt.bench.records import RunRecord, TableRecord
    from owttt.bench.running import Run, run
    from owttt.bench.spec import RunSpec
    from owttt.bench.steps import Step

__getattr__, __dir__ = attributes(
    "owttt.bench",
    {
        **dict.fromkeys(("RunRecord", "TableRecord"), "records"),
        **dict.fromkeys(("Run", "run"), "running"),
        "RunSpec": "spec",
        "Step": "steps",
    },
)

__all__ = ["Run", "RunRecord", "RunSpec", "Step", "TableRecord", "run"]
