"""The store of rejects, groups among them, and the forms they are exported in."""

import csv
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from owttt.cli import main
from owttt.serve.decoding import picture
from owttt.triage.clusters import ALONE, clustered
from owttt.triage.export import export
from owttt.triage.store import Reject, Store

torch = pytest.importorskip("torch")
RANDOM = np.random.default_rng(0)


def rejects(number, direction, spread=0.05, best="cat"):
    made = []
    for place in range(number):
        features = np.zeros(8, np.float32)
        features[direction] = 1
        features += spread * RANDOM.standard_normal(8).astype(np.float32)
        sample = torch.full((3, 6, 6), direction / 8)
        made.append(
            Reject(0.3 + 0.01 * place, 0.2, best, features, sample.half().numpy(), picture(sample), 3, time=1e9 + place)
        )
    return made


def test_what_is_kept_comes_back(tmp_path):
    store = Store(tmp_path / "r.sqlite")
    store.add(rejects(3, 1))
    again = Store.open(tmp_path / "r.sqlite").all()
    assert [one.id for one in again] == [1, 2, 3]
    assert (again[0].best, again[0].threshold, again[0].generation, again[0].accepted) == ("cat", 0.2, 3, False)
    assert again[0].sample.shape == (3, 6, 6)
    assert again[0].png.startswith(b"\x89PNG")
    assert [one.id for one in store.last(2)] == [3, 2]
    assert [one.id for one in store.get([3, 1, 99])] == [1, 3]
    store.clear()
    assert len(store) == 0


def test_a_full_store_keeps_rare_looks(tmp_path):
    store = Store(tmp_path / "r.sqlite", capacity=30)
    rare = rejects(4, 5)
    store.add(rare)
    for _ in range(10):
        store.add(rejects(20, 1, spread=0.01))
    assert len(store) == 30
    kept = sum(int(np.argmax(one.features) == 5) for one in store.all())
    assert kept >= 3, "of 204 samples four are rare, and nearly all of these are left"


def test_what_is_no_store_is_told(tmp_path):
    (tmp_path / "no.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(ValueError, match="not a store"):
        Store(tmp_path / "no.sqlite")
    with pytest.raises(FileNotFoundError, match="no store"):
        Store.open(tmp_path / "missing.sqlite")


def test_groups_are_found_and_the_most_typical_come_first():
    pytest.importorskip("sklearn")
    groups = clustered([*rejects(40, 1), *rejects(25, 3), *rejects(3, 6)])
    sizes = {number: len(group) for number, group in groups.items()}
    assert list(groups)[:2] == [0, 1]
    assert sizes[0] >= 36
    assert sizes[1] >= 22
    assert {int(np.argmax(one.features)) for one in groups[0]} == {1}
    unit = [one.features / np.linalg.norm(one.features) for one in groups[0]]
    mean = np.mean(unit, axis=0)
    away = [float(vector @ mean) for vector in unit]
    assert away == sorted(away, reverse=True)
    assert clustered([]) == {}
    assert list(clustered(rejects(3, 1))) == [ALONE]


def test_exports_are_what_the_tools_read(tmp_path):
    groups = {0: rejects(6, 1), 1: rejects(3, 2, best="=SUM(A1)"), ALONE: rejects(1, 3)}
    for number, one in enumerate([one for group in groups.values() for one in group]):
        object.__setattr__(one, "id", number + 1)
    export(groups, tmp_path / "out")
    folders = sorted(path.name for path in (tmp_path / "out" / "images").iterdir())
    assert folders == ["alone", "cluster-01", "cluster-02"]
    assert len(list((tmp_path / "out" / "images" / "cluster-01").glob("*.png"))) == 6
    rows = list(csv.DictReader((tmp_path / "out" / "rejects.csv").read_text().splitlines()))
    assert len(rows) == 10
    assert rows[6]["best_known_class"] == "'=SUM(A1)", "no spreadsheet computes it"
    labels = json.loads((tmp_path / "out" / "labels.json").read_text())
    assert labels["classes"] == ["cluster-01", "cluster-02", "alone"]
    assert labels["labels"]["cluster-02/7"] == 1
    there = {
        path.relative_to(tmp_path / "out" / "images").with_suffix("") for path in (tmp_path / "out").rglob("*.png")
    }
    assert {Path(name) for name in labels["labels"]} == there, "FiftyOne finds every file by its path below images"
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    assert len(tasks) == 10
    assert tasks[0]["predictions"][0]["result"][0]["value"] == {"choices": ["cluster-01"]}
    assert tasks[0]["data"]["image"].startswith("data:image/png;base64,")
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<section>") == 3
    assert "=SUM(A1)" in page
    with pytest.raises(FileExistsError):
        export(groups, tmp_path / "out")


def test_names_on_the_page_are_text(tmp_path):
    export({0: rejects(2, 1, best="<script>alert(1)</script>")}, tmp_path / "out")
    assert "<script>" not in (tmp_path / "out" / "index.html").read_text()


def test_the_command(tmp_path, capsys):
    pytest.importorskip("sklearn")
    Store(tmp_path / "r.sqlite").add([*rejects(30, 1), *rejects(30, 3)])
    assert main(["triage", str(tmp_path / "r.sqlite"), "-o", str(tmp_path / "out")]) == 0
    assert "cluster-02" in capsys.readouterr().out
    assert main(["triage", str(tmp_path / "r.sqlite"), "-o", str(tmp_path / "out")]) == 1
    assert main(["triage", str(tmp_path / "none.sqlite"), "-o", str(tmp_path / "new")]) == 1


def test_a_reader_and_a_writer_share_a_store(tmp_path):
    store = Store(tmp_path / "r.sqlite")
    store.add(rejects(2, 1))
    with sqlite3.connect(tmp_path / "r.sqlite") as other:
        assert other.execute("SELECT COUNT(*) FROM rejects").fetchone() == (2,)
    store.add(rejects(2, 2))
    assert len(Store.open(tmp_path / "r.sqlite")) == 4
