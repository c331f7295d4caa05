"""What was rejected and accepted, rightly and wrongly: pictures of a stream with their scores.

A record remembers places in its stream, not pictures: they are made again from the data, where it is there and still is
what it was. Only here and for clouds does a page need torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Final, final

from owttt._utils import plugins
from owttt.bench.records import ExampleRecord, RunRecord
from owttt.bench.report.contents import Contents
from owttt.bench.report.embedded import picture_source
from owttt.bench.report.loose import Group, stream_title
from owttt.bench.report.viewer import seen_by
from owttt.bench.report.wording import plain
from owttt.data.naming import DataName

if TYPE_CHECKING:
    from owttt.bench.running import Run

EVERYTHING: Final = "all"
STRIP: Final = 8
"""Pictures at the top of the page."""
_UNUSABLE: Final = (OSError, ValueError, TypeError, LookupError, ImportError)
"""What a record may come to whose data, model or method is not here."""


@final
@dataclass(frozen=True)
class Picture:
    """A sample of a stream: what it is, and what it was taken for."""

    source: str
    truth: str
    answer: str
    score: str
    right: bool


@final
@dataclass(frozen=True)
class Verdict:
    """Samples that fared alike, e.g. those rejected wrongly."""

    name: str
    right: bool
    pictures: list[Picture]


@final
@dataclass(frozen=True)
class Gallery:
    """Pictures of one run, or why there are none."""

    title: str
    method: str
    verdicts: list[Verdict]
    problem: str = ""

    @property
    def strip(self) -> list[Picture]:
        """A few pictures of all verdicts in turn."""
        turns = zip_longest(*(verdict.pictures for verdict in self.verdicts))
        return list(islice((picture for picture in chain.from_iterable(turns) if picture), STRIP))


def galleries(contents: Contents, loose: Sequence[Group], pictures_of: Collection[str]) -> list[Gallery]:
    """Return pictures of one run for every kind of stream whose data sets are all among those named, or `all`.

    Of a table it is a run of the row that it is about, of runs that belong to none the last of a stream.
    """
    check(contents, pictures_of)
    streams: dict[tuple[str, ...], RunRecord] = {}
    for run in _candidates(contents, loose):
        sets = data_sets(run)
        if len(sets) > 1 and all(_allowed(data, pictures_of) for data in sets):
            streams.setdefault((run["spec"]["model"], *(data.plain for data in sets)), run)
    return [_gallery(run) for run in streams.values()]


def check(contents: Contents, pictures_of: Collection[str]) -> None:
    """Raise if a data set is named that no run draws from."""
    there = {data for run in contents.runs for data in data_sets(run)}
    for name in pictures_of:
        if name != EVERYTHING and not any(_allowed(data, (name,)) for data in there):
            names = ", ".join(sorted({data.short for data in there}))
            raise ValueError(f"No run draws from a data set {name!r}. There are: {names}; or all.")


def data_sets(run: RunRecord) -> list[DataName]:
    """Return the data sets that a run's stream draws from, the known one first."""
    stream = run["spec"]["stream"]
    return [DataName.parse(name).under("") for name in (stream["known"], *stream["unknown"])]


def _allowed(data: DataName, pictures_of: Collection[str]) -> bool:
    return bool({EVERYTHING, data.plain, data.short} & set(pictures_of))


def _candidates(contents: Contents, loose: Iterable[Group]) -> Iterator[RunRecord]:
    for table in contents.tables:
        about = [placed for placed in table.runs if placed["row"] == table.highlight]
        yield from (placed["run"] for placed in seen_by(about))
    for group in loose:
        yield list(group.runs.values())[-1]


def _gallery(run: RunRecord) -> Gallery:
    threshold = run["curves"]["threshold"][-1]
    last = "" if threshold is None else f", last τ {threshold:.2f}"
    method = run["spec"]["method"]
    title = f"{stream_title(run)}: {method}{last}"
    try:
        return Gallery(title, method, _verdicts(run))
    except _UNUSABLE as error:
        return Gallery(title, method, [], plain(str(error)))


def _verdicts(record: RunRecord) -> list[Verdict]:
    from owttt.bench.running import Run  # noqa: PLC0415  (needs torch)
    from owttt.bench.spec import RunSpec  # noqa: PLC0415

    _refuse_functions(record)
    run = Run(RunSpec.parse(record["spec"]))
    if run.fingerprints != record["fingerprints"]:
        raise ValueError("the data or the model is no longer what this run met.")
    return [
        Verdict(name, not name.endswith("wrongly"), [_picture(run, example) for example in examples])
        for name, examples in record["examples"].items()
        if examples
    ]


def _refuse_functions(record: RunRecord) -> None:
    """Raise if pictures would need code that a record names: a page may be made of a stranger's results folder."""
    named = [record["spec"]["model"], *(data.plain for data in data_sets(record))]
    if functions := [name for name in named if plugins.is_path(name)]:
        raise ValueError(f"{', '.join(functions)} would have to be imported and called, which a page never does.")


def _picture(run: Run, example: ExampleRecord) -> Picture:
    truth, answer = (_class(label, run.model.names) for label in (example["label"], example["predicted"]))
    source = picture_source(run.stream.picture(example["place"]))
    return Picture(source, truth, answer, f"{example['score']:.2f}", example["label"] == example["predicted"])


def _class(label: int, names: Sequence[str]) -> str:
    return "unknown" if label < 0 else names[label].partition(",")[0]
