"""Benchmarks run for long; here only that they can be imported, and that what they tell of their counts is right."""

import runpy
import zipfile
from pathlib import Path

import numpy as np
import pytest

from owttt._utils.files import write_json
from owttt.bench.report import render

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_can_be_imported(path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    runpy.run_path(str(path))


@pytest.fixture
def hostile():
    return runpy.run_path(str(BENCHMARKS / "hostile.py"))


def counted(hostile, right):
    """Two batches a scene, of 100 known samples and 100 unknown ones, so many of the known ones right; one is lost."""
    rows = [
        [[100, right, right - 1, 100, 75] if scene.unknown else [100, right, right - 1, 0, 0] for _ in range(2)]
        for scene in hostile["ORDER"]
    ]
    return {"batches": rows, "environment": {"owttt": "0"}}


def test_the_hostile_stream_is_a_table_of_the_page(hostile, tmp_path):
    records = {"test": counted(hostile, 40), "owttt+": counted(hostile, 80)}
    table = hostile["table"](records, "some model")
    cells = {(cell["row"], cell["column"]): cell["mean"] for cell in table["cells"]}
    assert cells["test", "clean"] == [40, 39]
    assert cells["owttt+", "snow, 20 % MNIST"] == [80, 79, 75]
    assert cells["owttt+", "noise only"] == [75]

    (tmp_path / "tables").mkdir()
    write_json(tmp_path / "tables" / "hostile.json", table)
    hostile["draw"](records, tmp_path / "figures" / "hostile.svg")
    page = render(tmp_path, "A page")
    assert "a long and hostile stream" in page
    assert "data:image/svg+xml" in page


def test_curves_are_of_the_last_samples(hostile):
    record = counted(hostile, 40)
    record["batches"][-1] = [[1000, 900, 900, 0, 0]] * 3
    places, shares = hostile["_curve"](record, "right", "known")
    known = sum(row[0] + row[3] for rows in record["batches"] for row in rows)
    assert places[-1] == known / 1000
    assert shares[-1] == 90
    assert shares[0] == 40
    rejected = hostile["_curve"](record, "rejected", "unknown")[1]
    assert np.isnan(rejected[-1]), "there was nothing unknown for long"


def test_what_is_behind_by_more_than_chance_is_told(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    deployment = runpy.run_path(str(BENCHMARKS / "deployment.py"))
    few, many = ("snow", "MNIST", 5), ("snow", "MNIST", 50)

    def row(known, unknown):
        shares = {"acc_s": known, "acc_n": unknown, "acc_h": 2 * known * unknown / (known + unknown)}
        cells = {}
        for what, number in ((few, 27), (many, 512)):
            error = deployment["standard_error"](shares | {"n_known": 512, "n_unknown": number})
            cells[what] = {name: 100 * share for name, share in shares.items()} | {"error": error}
        return cells

    better, worse = row(0.6, 0.8), row(0.6, 0.65)
    assert len(deployment["behind"](worse, better, 0.5)) == 2
    assert deployment["beyond_chance"](worse, better) == 1, "27 samples do not tell 65 from 80 %"
    assert deployment["beyond_chance"](better, worse) == 0
    assert not deployment["behind"](better, worse, 0.5)
    crossed = {what: numbers | {"acc_n": 100 - numbers["acc_n"]} for what, numbers in worse.items()}
    assert not deployment["behind"](crossed, better, 0.5, "acc_s"), "another metric can be asked for"
    none = {("snow", "nothing", 0): {"acc_s": 60.0}}
    assert deployment["some_unknown"](worse | none).keys() == worse.keys()
    draws = np.random.default_rng(0).binomial([[512], [27]], [[0.6], [0.8]], size=(2, 20000)) / [[512], [27]]
    simulated = 100 * (2 * draws[0] * draws[1] / draws.sum(axis=0)).std()
    assert better[few]["error"] == pytest.approx(simulated, rel=0.05)
    assert deployment["standard_error"]({"acc_s": 0.5, "n_known": 100, "n_unknown": 0}) == 5.0


@pytest.fixture
def packing(tmp_path):
    """A results folder with three tables, a project with records that belong to none, and what packs them."""
    results, project = tmp_path / "results", tmp_path / "project"
    for folder in (results, project):
        (folder / "tables").mkdir(parents=True)
        (folder / "figures").mkdir()
    (results / "embeddings").mkdir()
    record(results, "bn-1.json", corruptions=["snow"], num_samples=None)
    record(results, "bn-2.json", corruptions=["snow", "fog"], num_samples=None)
    record(results, "embeddings/bn-3.json", corruptions=["snow"], num_samples=100)
    record(results, "owttt+-4.json", corruptions=["snow"], num_samples=None)
    table(results, "one", "bn-1.json", "bn-2.json")
    table(results, "two", "bn-1.json", "owttt+-4.json")
    table(results, "drawn", "bn-3.json", folder="embeddings")
    (results / "figures" / "drawn-dark.svg").write_text("<svg/>")
    pack = runpy.run_path(str(BENCHMARKS / "pack.py"))
    (project / "other.zip").write_bytes(pack["zipped"]({"other-9.json": b'{"batches": []}'}))
    pack["main"].__globals__["render"] = lambda folder, title: f"{title}: {len(list(folder.glob('*.json')))} records"
    return lambda *words: pack["main"]([str(results), str(project), *words]), results, project


def record(results, name, acc_h=0.5, **stream):
    spec = {"model": "m", "method": name.split("-")[0], "stream": stream}
    write_json(results / name, {"spec": spec, "metrics": {"acc_h": acc_h}})


def table(results, name, *files, folder="", acc_h=0.5):
    runs = [{"file": file, "corruptions": ["snow"], "seed": 0, "metrics": {"acc_h": acc_h}} for file in files]
    cells = [{"row": "r", "column": "c", "runs": runs}]
    content = {"kind": "owttt table", "format": 2, "folder": folder, "cells": cells}
    write_json(results / "tables" / f"{name}.json", content)


def packed(project):
    return {path.stem: sorted(zipfile.ZipFile(path).namelist()) for path in project.glob("*.zip")}


def test_records_are_packed_with_the_tables_they_belong_to(packing):
    pack, _, project = packing
    pack("--add", "one", "two", "drawn")
    everything = {
        "snow": ["bn-1.json"],
        "mixed": ["bn-2.json"],
        "m": ["embeddings/bn-3.json"],
        "deployed": ["owttt+-4.json"],
        "other": ["other-9.json"],
    }
    assert packed(project) == everything
    assert (project / "figures" / "drawn-dark.svg").is_file()
    assert (project / "index.html").read_text() == "Open-world test-time training: 4 records"
    before = {path: path.read_bytes() for path in project.glob("*.zip")}
    pack()
    assert {path: path.read_bytes() for path in project.glob("*.zip")} == before
    pack("--drop", "one", "drawn", "--begun")
    assert packed(project) == {
        "snow": ["bn-1.json"],
        "deployed": ["owttt+-4.json"],
        "other": ["other-9.json"],
        "begun": ["bn-2.json", "embeddings/bn-3.json"],
    }
    assert not list((project / "figures").iterdir())


def test_what_was_begun_elsewhere_is_kept_and_used(packing):
    pack, results, project = packing
    pack("--add", "two", "--begun")
    (results / "bn-2.json").unlink()
    pack("--begun")
    assert packed(project)["begun"] == ["bn-2.json", "embeddings/bn-3.json"]
    pack("--add", "one", "--begun")
    assert packed(project)["mixed"] == ["bn-2.json"]


def test_nothing_is_packed_that_does_not_go_together(packing):
    pack, results, project = packing
    pack("--add", "two")
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    (results / "bn-2.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"bn-2\.json, a record of one, is missing"):
        pack("--add", "one")
    record(results, "owttt+-4.json", acc_h=0.6, corruptions=["snow"], num_samples=None)
    table(results, "newer", "owttt+-4.json", acc_h=0.6)
    with pytest.raises(ValueError, match=r"owttt\+-4\.json is not the record that two was made of"):
        pack("--add", "newer")
    pack()
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before, "a newer record waits"
