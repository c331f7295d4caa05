"""Put results into the project: tables, figures, the records they were made of, and the page.

    python benchmarks/pack.py out/results docs/results --add table1-1a2b3c4d --drop table1-5e6f7081

Tables that are in the project stay until they are dropped. Records are kept if a table there refers to them, or if they
came without a table, as those of the hostile stream. Those of streams of the paper's length are zipped by corruption,
others by model, and those of `owttt+` by themselves, since these are made again with every version. With `--begun` all
other records of the results folder, and of the `begun.zip` that is there, go to `begun.zip`, so that tables which are
not complete yet can go on from them; without it there is none. Zip files are the same, byte for byte, if records are.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import zipfile
from collections import defaultdict
from pathlib import Path

from owttt._utils.files import write_bytes
from owttt.bench.records import CellRun, TableRecord, read_tables
from owttt.bench.report import render

BEGUN = "begun.zip"
TITLE = "Open-world test-time training"
FIGURES = (".png", ".svg", "-dark.svg")
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The time given to all files in zips."""
Tables = dict[str, TableRecord]
Records = dict[str, bytes]
"""Records by their paths in a results folder."""


def zipped(records: Records) -> bytes:
    """Return a zip file of records."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, record in sorted(records.items()):
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), record, zipfile.ZIP_DEFLATED, compresslevel=9)
    return packed.getvalue()


def unzipped(paths: list[Path]) -> Records:
    """Return the records in zip files."""
    found: Records = {}
    for path in paths:
        with zipfile.ZipFile(path) as archive:
            found |= {name: archive.read(name) for name in archive.namelist()}
    return found


def group(name: str, record: bytes) -> str:
    """Return the name of the zip file that a record goes to."""
    spec = json.loads(record).get("spec")
    if spec is None:
        return name.split("-", maxsplit=1)[0]
    if spec["method"] == "owttt+":
        return "deployed"
    stream = spec["stream"]
    if stream.get("num_samples", 0) is not None:
        return str(spec["model"])
    return stream["corruptions"][0] if len(stream["corruptions"]) == 1 else "mixed"


def referred(tables: Tables) -> set[str]:
    """Return the paths of the records that tables were made of."""
    return {path for table in tables.values() for path, _ in runs(table)}


def runs(table: TableRecord) -> list[tuple[str, CellRun]]:
    """Return the runs of a table with the paths of their records."""
    folder = Path(table["folder"])
    return [((folder / run["file"]).as_posix(), run) for cell in table["cells"] for run in cell["runs"]]


def choose(results: Path, project: Path, add: list[str], drop: list[str]) -> tuple[Records, Records]:
    """Return the records that belong into the project, and those of tables that are not complete yet.

    Raises:
        FileNotFoundError: A record of a table is missing.
        ValueError: A record is not the one that a table was made of.
    """
    now, new = dict(read_tables(project)), dict(read_tables(results))
    added: Tables = {name: new[name] for name in add}
    stay: Tables = {name: table for name, table in now.items() if name not in drop and name not in add}
    archives = list(project.glob("*.zip"))
    packed = unzipped([path for path in archives if path.name != BEGUN])
    begun = unzipped([path for path in archives if path.name == BEGUN])
    paths = [path for path in results.rglob("*.json") if path.parent.name not in ("tables", "figures")]
    fresh = {path.relative_to(results).as_posix(): path.read_bytes() for path in paths}
    without_table = {path: fresh.get(path, record) for path, record in packed.items() if path not in referred(now)}
    there = begun | fresh | packed
    chosen = without_table | {path: there[path] for path in referred(stay) if path in there}
    chosen |= {path: (begun | packed | fresh)[path] for path in referred(added) if path in there}
    for name, table in (stay | added).items():
        for path, run in runs(table):
            if path not in chosen:
                raise FileNotFoundError(f"{results}: {path}, a record of {name}, is missing.")
            metrics = json.loads(chosen[path])["metrics"]
            if any(metrics.get(metric) != value for metric, value in run.get("metrics", {}).items()):
                raise ValueError(f"{path} is not the record that {name} was made of; make that table anew, and add it.")
    return chosen, {path: record for path, record in (begun | fresh).items() if path not in chosen}


def choose_tables(results: Path, project: Path, add: list[str], drop: list[str]) -> None:
    """Copy tables and their figures into the project, and remove others."""
    for name in add:
        write_bytes(project / "tables" / f"{name}.json", (results / "tables" / f"{name}.json").read_bytes())
        for ending in FIGURES:
            if (figure := results / "figures" / f"{name}{ending}").is_file():
                write_bytes(project / "figures" / figure.name, figure.read_bytes())
    for name in drop:
        (project / "tables" / f"{name}.json").unlink()
        for ending in FIGURES:
            (project / "figures" / f"{name}{ending}").unlink(missing_ok=True)


def page(records: Records, project: Path) -> str:
    """Return the page of the project's tables and records."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, record in records.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(record)
        for kind in ("tables", "figures"):
            (folder / kind).symlink_to((project / kind).resolve())
        return render(folder, TITLE)


def main(words: list[str] | None = None) -> None:
    """Choose, zip, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the folder of `owttt bench --results`")
    parser.add_argument("project", type=Path, help="docs/results")
    parser.add_argument("--add", nargs="*", default=[], metavar="TABLE", help="names of files in tables/, no ending")
    parser.add_argument("--drop", nargs="*", default=[], metavar="TABLE")
    parser.add_argument("--begun", action="store_true", help="keep records of tables that are not complete yet, too")
    chosen = parser.parse_args(words)
    records, others = choose(chosen.results, chosen.project, chosen.add, chosen.drop)
    choose_tables(chosen.results, chosen.project, chosen.add, chosen.drop)
    archives: dict[str, Records] = defaultdict(dict)
    for name, record in records.items():
        archives[f"{group(name, record)}.zip"][name] = record
    if chosen.begun and others:
        archives[BEGUN] = others
    for name, content in archives.items():
        write_bytes(chosen.project / name, zipped(content))
        print(f"{name}: {len(content)} records")
    for path in chosen.project.glob("*.zip"):
        if path.name not in archives:
            path.unlink()
    write_bytes(chosen.project / "index.html", page(records, chosen.project).encode())


if __name__ == "__main__":
    main()
