"""Runs that belong to no table: those on one stream side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, final

from owttt.bench.records import RunRecord, corruption_of, metric_name
from owttt.bench.report.grids import Grid, Heading, Row, Shown
from owttt.bench.report.sections import Configuration, configuration
from owttt.bench.report.wording import percent, plain
from owttt.data.naming import DataName

METRICS: Final = ("acc_s", "acc_n", "acc_h", "acc_closed", "known_rejected", "auroc")
USUAL: Final[Mapping[str, Any]] = {"threshold": "adaptive", "score": "cosine", "order": "predict-then-adapt"}
"""What a row's name does not tell: the defaults of a run, written here because pages are made without torch."""
USUAL_STREAM: Final[Mapping[str, Any]] = {
    "ratio": 1.0, "batch_size": 256, "phases": "mixed", "cycles": 3, "share": "constant", "bursts": 5, "repeat": False,
}  # fmt: skip
"""The same of a stream, where the default is not None."""
_OF_A_ROW: Final = frozenset({"method", "options", "embed", *USUAL})
_IN_THE_TITLE: Final = frozenset({"known", "corruptions", "severity", "unknown", "num_samples", "seed"})


@final
@dataclass(frozen=True)
class Group:
    """Runs on one stream, by the names of their rows; the one with the highest Acc_H comes last."""

    anchor: str
    title: str
    about: str
    runs: dict[str, RunRecord]
    grid: Grid
    configuration: Configuration | None


def groups(runs: Sequence[RunRecord]) -> list[Group]:
    """Return runs by stream: by all of their spec that is not about the method."""
    found: dict[str, list[RunRecord]] = {}
    for run in runs:
        found.setdefault(_stream_key(run), []).append(run)
    titled = sorted(found.values(), key=lambda some: (stream_title(some[0]), _about(some[0])))
    return [_group(number, some) for number, some in enumerate(titled)]


def stream_title(run: RunRecord) -> str:
    """Return what met what: model, known set, corruption and unknown sets."""
    spec = run["spec"]
    stream = spec["stream"]
    known = DataName.parse(stream["known"]).short
    seen = f"{corruption_of(run)} {stream['severity']}" if stream["corruptions"] else "clean"
    against = " + ".join(map(_unknown, stream["unknown"]))
    title = f"{PurePath(spec['model']).name}: {known}, {seen}"
    return plain(f"{title}, against {against}" if against else f"{title}, without unknown samples")


def _unknown(name: str) -> str:
    data = DataName.parse(name)
    return f"{data.short}@{data.corruption}" if data.corruption else data.short


def _group(number: int, runs: Sequence[RunRecord]) -> Group:
    ordered = sorted(runs, key=lambda run: run["metrics"].get("acc_h") or 0.0)
    named = dict(zip(_unique(map(_row_name, ordered)), ordered, strict=True))
    return Group(f"runs-{number}", stream_title(runs[0]), _about(runs[0]), named, _grid(named), configuration(ordered))


def _grid(runs: Mapping[str, RunRecord]) -> Grid:
    best = max((run["metrics"].get("acc_h") or 0.0 for run in runs.values()), default=0.0)
    rows = []
    for name, run in runs.items():
        first = len(runs) > 1 and run["metrics"].get("acc_h") == best
        cells = [
            Shown(percent(run["metrics"].get(metric)), marks="best" if first and metric == "acc_h" else "")
            for metric in METRICS
        ]
        last = run["curves"]["threshold"][-1]
        acted = run["curves"].get("events", [None])[-1]
        seen = [Shown("∞" if last is None else f"{last:.2f}"), Shown("" if acted is None else f"{acted:.0f}")]
        rows.append(Row(name, [*cells, *seen]))
    told = [Heading("last τ"), Heading("times the guard acted")]
    return Grid([*(Heading("", (metric_name(metric),)) for metric in METRICS), *told], rows)


def _row_name(run: RunRecord) -> str:
    """Return the method and what is not as usual about it."""
    spec = run["spec"]
    told = [f"{name} {_value(spec[name])}" for name, usual in USUAL.items() if spec.get(name, usual) != usual]
    options = [f"{name} {_value(value)}" for name, value in spec.get("options", {}).items()]
    embedded = ["with an embedding"] if spec.get("embed") else []
    return plain(", ".join([spec["method"], *options, *told, *embedded]))


def _unique(names: Iterator[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"


def _stream_key(run: RunRecord) -> str:
    shared = {name: value for name, value in run["spec"].items() if name not in _OF_A_ROW and value}
    return json.dumps({**shared, "stream": _stream(run)}, sort_keys=True)


def _stream(run: RunRecord) -> dict[str, Any]:
    """Return a run's stream, in which earlier versions called the number of samples otherwise."""
    stream = dict(run["spec"]["stream"])
    return {**stream, "num_samples": stream.pop("number", stream.get("num_samples"))}


def _about(run: RunRecord) -> str:
    stream = _stream(run)
    number = stream["num_samples"]
    told = ["all known samples" if number is None else f"{number:,} known samples", f"seed {stream['seed']}"]
    for name, value in stream.items():
        if name not in _IN_THE_TITLE and value != USUAL_STREAM.get(name):
            told.append(f"{name.replace('_', ' ')} {_value(value)}")
    told += [f"preset {preset}" for preset in [run["spec"].get("preset")] if preset]
    return plain(", ".join(told))


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return plain(value) if isinstance(value, str) else json.dumps(value)
