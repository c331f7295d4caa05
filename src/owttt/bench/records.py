"""What results folders hold, typed: records of runs and of tables, as JSON. Needs no torch.

Every renderer (terminal, text, pictures, pages) reads these and nothing else, so a page can be made of anyone's results
folder. Records of earlier versions lack some of the keys; what they lack is shown as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

from owttt._utils.files import DamagedFileError, read_json
from owttt._utils.warning import warn

RUN_KIND: Final = "owttt run"
TABLE_KIND: Final = "owttt table"
FORMAT: Final = 2
"""Version of records; raised when a reader of the last one could not read them."""

Number = float | None
"""A metric, None where there is nothing to measure it on."""
Cell = tuple[str, str]
"""Row and column."""

METRIC_NAMES: Final = {
    "acc_s": "Acc_S",
    "acc_n": "Acc_N",
    "acc_h": "Acc_H",
    "acc_closed": "closed",
    "known_rejected": "rejected",
    "auroc": "AUROC",
    "fpr95_unknown_positive": "FPR95 (unknown +)",
    "fpr95_known_positive": "FPR95 (known +)",
    "oscr": "OSCR",
    "acc_h_auroc": "H(closed, AUROC)",
    "ece": "ECE",
}
"""Metric → what it is called in tables. All are shares, shown in percent."""
COSTS: Final = ("acc_closed", "known_rejected")
"""Shown beside every table: what the network still knows, and what the threshold costs ordinary traffic."""
COSTS_TOLD: Final = (
    "closed: accuracy on known samples, rejection ignored; rejected: share of known samples rejected (means of the row)"
)


class ScoresRecord(TypedDict):
    """Histograms of the scores: common edges, and counts per batch."""

    edges: list[float]
    known: list[list[int]]
    unknown: list[list[int]]


class ExampleRecord(TypedDict):
    """One sample of a stream: where it stands, its score, the answer and the truth."""

    place: int
    score: float
    predicted: int
    label: int


class EmbeddingRecord(TypedDict):
    """Where samples lie in two dimensions, at every stage of a stream."""

    labels: list[int]
    stages: list[dict[str, Any]]


class MethodRecord(TypedDict):
    """What pictures need to know of a method."""

    name: str
    color: str | None


class RunRecord(TypedDict):
    """A run in full: what came of it, and everything that it depends on."""

    kind: str
    format: int
    metrics: dict[str, Number]
    curves: dict[str, list[Number]]
    """Over the batches: cumulative accuracies, the threshold, and what the method lets watch."""
    scores: ScoresRecord
    examples: dict[str, list[ExampleRecord]]
    seconds: list[float]
    """Time the adapter took, per batch."""
    waiting: NotRequired[float]
    """Share of the time that the adapter stood still because data was not there."""
    spec: dict[str, Any]
    """What `RunSpec.parse` takes."""
    adapter: dict[str, Any]
    data: dict[str, Any]
    environment: dict[str, Any]
    fingerprints: dict[str, Any]
    events: NotRequired[list[dict[str, Any]]]
    """What the guard did, the last hundred times: at which batch, what, and why."""
    method: NotRequired[MethodRecord]
    embedding: NotRequired[EmbeddingRecord]


class CellRun(TypedDict):
    """One of the runs that a cell is the mean of."""

    file: str
    corruptions: list[str]
    seed: int
    metrics: NotRequired[dict[str, Number]]


class CellRecord(TypedDict):
    """A cell of a table: ours (percent) and the published numbers, and the runs it is made of."""

    row: str
    column: str
    published: Sequence[float] | None
    mean: Sequence[Number] | None
    deviation: Sequence[Number] | None
    seeds: dict[str, Sequence[Number]]
    runs: list[CellRun]


class TableRecord(TypedDict):
    """A table or figure as it was run."""

    kind: str
    format: int
    name: str
    title: str
    label: str
    draw: str
    folder: str
    about: str
    rows: list[str]
    columns: list[str]
    headings: dict[str, str]
    metrics: dict[str, list[str]]
    model: str
    corruptions: list[str]
    all_corruptions: bool
    number: int | None
    seeds: list[int]
    stand_ins: dict[str, str]
    extra: dict[str, str]
    changes: dict[str, Any]
    cells: list[CellRecord]
    failed: list[str]
    environment: dict[str, Any]
    colors: NotRequired[dict[str, str | None]]
    """Row → the color of its method."""
    known: NotRequired[str]
    """The known set, before anything stood in for it."""
    highlight: NotRequired[str]
    """The row that the table is about."""
    baseline: NotRequired[str]
    """The row that others should not fall behind."""


class PlacedRun(TypedDict):
    """A run and the cell of a table it belongs to."""

    row: str
    column: str
    run: RunRecord


def read_run(path: Path) -> RunRecord | None:
    """Return the record in a file, or None if there is none; a damaged one is a `DamagedFileError`."""
    try:
        content = read_json(path)
    except FileNotFoundError:
        return None
    return _run(content) if content.get("kind") == RUN_KIND else None


def whole_run(path: Path, consequence: str) -> RunRecord | None:
    """Return the record in a file; of one that is damaged it warns, with what follows from that, and returns None."""
    try:
        return read_run(path)
    except DamagedFileError as error:
        warn(f"{error} {consequence}")
        return None


def read_tables(folder: Path) -> list[tuple[str, TableRecord]]:
    """Return the tables of a results folder with their names, by name; another kind of file is an error."""
    return [(path.stem, _read_table(path)) for path in sorted((folder / "tables").glob("*.json"))]


def read_runs(folder: Path) -> Iterator[tuple[Path, RunRecord]]:
    """Yield every run of a results folder, whichever table it belongs to, by file name."""
    for path in sorted(folder.glob("*.json")):
        record = whole_run(path, "It is left out: run it again, or remove the file.")
        if record is not None:
            yield path, record


def runs_of(table: TableRecord, folder: Path) -> list[PlacedRun]:
    """Return the runs of a table with the cells they belong to; missing ones are left out."""
    found: list[PlacedRun] = []
    for cell in table["cells"]:
        for entry in cell["runs"]:
            path = folder / table["folder"] / entry["file"]
            record = whole_run(path, "It is left out: make the table again with `owttt bench`.")
            if record is not None:
                found.append({"row": cell["row"], "column": cell["column"], "run": record})
    return found


def cells_of(table: TableRecord) -> dict[Cell, CellRecord]:
    """Return the cells of a table by row and column."""
    return {(cell["row"], cell["column"]): cell for cell in table["cells"]}


def row_mean(table: TableRecord, row: str, metric: str) -> Number:
    """Return the mean of a metric over all runs of a row, in percent; None where a run does not have it."""
    values = [
        run.get("metrics", {}).get(metric) for cell in table["cells"] if cell["row"] == row for run in cell["runs"]
    ]
    there = [value for value in values if value is not None]
    return 100 * sum(there) / len(there) if there and len(there) == len(values) else None


def corruption_of(run: RunRecord) -> str:
    """Return what corrupts a run's known samples."""
    return " + ".join(run["spec"]["stream"]["corruptions"]) or "clean"


def metric_name(metric: str) -> str:
    """Return what a metric is called in tables."""
    return METRIC_NAMES.get(metric, metric)


def _read_table(path: Path) -> TableRecord:
    try:
        content = read_json(path)
    except DamagedFileError as error:
        raise ValueError(f"{error} Make the table again with `owttt bench`, or remove the file.") from error
    if (content.get("kind"), content.get("format")) != (TABLE_KIND, FORMAT):
        raise ValueError(
            f"{path}: not a table of this version of owttt; make it again with `owttt bench`, or remove it."
        )
    for cell in content["cells"]:
        cell["runs"] = [_cell_run(run) for run in cell["runs"]]
    return content  # type: ignore[return-value]


def _cell_run(run: Mapping[str, Any]) -> CellRun:
    """Return a cell's run; earlier versions kept its metrics beside the rest."""
    about: CellRun = {"file": run["file"], "corruptions": run["corruptions"], "seed": run["seed"]}
    metrics = run.get("metrics") or {name: run[name] for name in METRIC_NAMES if name in run}
    return {**about, "metrics": metrics} if metrics else about


def _run(content: dict[str, Any]) -> RunRecord:
    return content  # type: ignore[return-value]
