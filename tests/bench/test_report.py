"""Figures and the page, made by the commands and looked at by a browser where there is one."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from owttt._utils.files import SEAL, write_json
from owttt.bench.figures import DRAW, by_corruption
from owttt.bench.figures.overview import accuracies_by_corruption
from owttt.bench.report import render
from owttt.bench.report.gallery import _gallery
from owttt.bench.report.loose import USUAL, USUAL_STREAM
from owttt.bench.report.wording import plain
from owttt.bench.spec import RunSpec
from owttt.bench.tables import paper
from owttt.cli import main
from owttt.data.streams.spec import StreamSpec
from tests.browser import BROWSER

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here; apt-get install chromium")
BAD = """<script>alert(1)</script>"><img src=x onerror="document.title='hit'">'{{7*7}}"""
PROBE = """
const scrubber = document.querySelector("input[type=range]"), scores = document.querySelector(".scores");
const before = scores.innerHTML;
scrubber.value = 1;
scrubber.dispatchEvent(new Event("input"));
const visible = (name) => getComputedStyle(document.querySelector(name)).display !== "none";
const box = [...document.querySelectorAll(".scroll")].find((one) => one.scrollWidth > one.clientWidth + 50);
const first = box && box.querySelector("tbody th"), from = first && first.getBoundingClientRect().left;
if (box) box.scrollLeft = 50;
const seen = {
  tables: document.querySelectorAll("table").length, curves: document.querySelectorAll(".curves path").length,
  bars: document.querySelectorAll(".scores rect").length, moved: before !== scores.innerHTML,
  said: document.querySelector("output").textContent,
  images: [...document.images].map((one) => one.complete && one.naturalWidth > 0),
  wide: document.documentElement.scrollWidth - window.innerWidth,
  fixed: box ? first.getBoundingClientRect().left === from : null,
  side: visible(".side"), bar: visible(".bar"), width: window.innerWidth,
  scripts: document.scripts.length, handlers: document.querySelectorAll("[onerror],[onload],[onclick]").length,
  title: document.title,
};
parent.postMessage(JSON.stringify(seen), "*");
"""
"""Moves the scrubber, scrolls a table and tells what is there."""
FRAME = """<!doctype html><pre></pre>
<script>addEventListener("message", (event) => { document.querySelector("pre").textContent = event.data; });</script>
<iframe src="probed.html" width="WIDTH" height="900" style="border: 0"></iframe>"""
"""A page as wide as a phone: browsers without a window are never that narrow themselves."""


def fake_run(method="bn", *, acc_h=0.5, corruption="snow", color="#3f7fbf", unknown=("mnist",), **spec):
    """A record as runs write it, made up."""
    stream = {
        "known": "cifar10", "corruptions": [corruption], "severity": 5, "unknown": [*unknown], "ratio": 1.0,
        "num_samples": 8, "batch_size": 4, "seed": 0,
    }  # fmt: skip
    shares = {"acc_s": 0.4, "acc_n": 0.6, "acc_h": acc_h, "acc_closed": 0.7, "known_rejected": 0.25, "auroc": None}
    return {
        "kind": "owttt run",
        "format": 2,
        "metrics": shares,
        "curves": {"acc_h": [0.3, acc_h], "threshold": [None, 0.25]},
        "scores": {"edges": [0.0, 0.5, 1.0], "known": [[3, 1], [2, 2]], "unknown": [[1, 3], [0, 4]]},
        "examples": {},
        "seconds": [0.1, 0.1],
        "spec": {"model": "/home/me/nets/net", "stream": stream, "method": method, "options": {}, **USUAL, **spec},
        "adapter": {},
        "data": {},
        "environment": {"owttt": "0.1.0"},
        "fingerprints": {},
        "method": {"name": method, "color": color},
    }


def fake_table(rows=("test", "bn"), columns=("mnist", "svhn"), **changes):
    """A table as benches write it, made up: row n has 50 + 10 n in the first column, and 1 less in each next."""
    cells = [
        {
            "row": row,
            "column": column,
            "published": None,
            "mean": [40.0, 50.0 + 10 * r - c],
            "deviation": [None, None],
            "seeds": {"0": [40.0, 50.0 + 10 * r - c]},
            "runs": [],
        }
        for r, row in enumerate(rows)
        for c, column in enumerate(columns)
    ]
    return {
        "kind": "owttt table", "format": 2, "name": "table1", "title": "CIFAR-10-C", "label": "Tab. 1", "draw": "",
        "folder": "", "about": "net, 8 known samples per run, seed 0", "rows": [*rows], "columns": [*columns],
        "headings": {column: column for column in columns}, "metrics": {key: ["acc_s", "acc_h"] for key in columns},
        "model": "net", "corruptions": ["snow"], "all_corruptions": False, "number": 8, "seeds": [0], "stand_ins": {},
        "extra": {}, "changes": {}, "cells": cells, "failed": [], "environment": {"owttt": "0.1.0"},
        "highlight": rows[-1], "baseline": rows[0], **changes,
    }  # fmt: skip


def fill(folder, runs=(), tables=()):
    (folder / "tables").mkdir(parents=True)
    for number, run in enumerate(runs):
        (folder / f"run-{number}.json").write_text(json.dumps(run))
    for number, table in enumerate(tables):
        (folder / "tables" / f"{table['name'] if table['name'].isalnum() else 'x'}-{number}.json").write_text(
            json.dumps(table)
        )
    return folder


def menu(text):
    return re.findall(r'<a href="#[^"]+">([^<]+)', text.split('<nav class="side"')[1].split("</nav>")[0])


def view_data(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])["views"]


def words_of(text):
    """The text of a page without its tags, as one line."""
    return " ".join(re.sub(r"<[^>]+>", "", text.split("<main>")[1]).split())


@pytest.fixture(scope="module")
def results(place, tmp_path_factory):
    """A results folder with a table of two seeds, and every figure."""
    folder = tmp_path_factory.mktemp("results")
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OWTTT_DATA", str(root))
        patch.setenv("COLUMNS", "200")
        words = ["--model", str(place / "model"), "--num-samples", "20", "--batch-size", "8", "--results", str(folder)]
        for name in ("cifar10", "mnist", "svhn"):
            words += ["--stand-in", f"{name}=npz:{place / ('known.npz' if name == 'cifar10' else 'unknown.npz')}"]
        assert main(["bench", "mixed", *words, "--methods", "test,bn,owttt", "--seeds", "0,1"]) == 0
        assert main(["bench", "keep", *words, "--corruptions", "snow,fog", "--columns", "mnist"]) == 0
        for name, table in paper().items():
            if table.draw:
                some = ["--corruptions", "snow,fog"] if len(table.corruptions) > 3 else []
                some += ["--columns", "mnist,svhn"] if name == "fig-thresholds" else []
                assert main(["bench", name, *words, *some]) == 0
    return folder


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    """The page of these results, with a gallery."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    assert main(["report", str(results), "-o", str(path), "--title", "A <page>", "--gallery", "all"]) == 0
    return path


def test_every_figure_is_drawn(results):
    drawn = {path.name.rpartition("-")[0] for path in (results / "figures").glob("*.png")}
    figures = {name: table.draw for name, table in paper().items() if table.draw}
    assert drawn == set(figures)
    assert set(figures.values()) == set(DRAW)
    for path in (results / "figures").glob("*.png"):
        with Image.open(path) as image:
            assert len(set(image.convert("RGB").resize((64, 64)).get_flattened_data())) > 5, f"{path.name} is not blank"
        for vector in (path.with_suffix(".svg"), path.with_name(f"{path.stem}-dark.svg")):
            assert "<svg" in vector.read_text()
            assert "dc:date" not in vector.read_text(), "the same every time"


def run_in(corruption, acc_h):
    return {"metrics": {"acc_h": acc_h}, "spec": {"stream": {"corruptions": [corruption]}}}


def test_bars_of_all_corruptions_that_rows_have_in_common(tmp_path):
    runs = [run_in("snow", 0.5), run_in("snow", 0.7), run_in("fog", 0.2)]
    assert accuracies_by_corruption(runs) == {"snow": [50, 70], "fog": [20]}
    assert np.isnan(accuracies_by_corruption([run_in("snow", None)])["snow"][0])
    by_corruption({"one": runs, "two": runs[:2]}, tmp_path / "bars.svg")
    drawn = (tmp_path / "bars.svg").read_text()
    assert "snow" in drawn
    assert ">60<" in drawn, "the mean"
    assert "fog" not in drawn, "one row has no run of it"


def embedded_runs(results):
    records = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    return records, [record for record in records if "embedding" in record]


def test_embeddings_are_of_the_same_samples_at_every_stage(results):
    record = next(record for record in embedded_runs(results)[1] if record["spec"]["method"] == "owttt")
    embedding = record["embedding"]
    assert [stage["share"] for stage in embedding["stages"]] == [0.25, 0.5, 0.75, 1.0]
    assert all(len(stage[key]) == 40 for stage in embedding["stages"] for key in ("x", "y", "predicted"))
    assert len(embedding["labels"]) == 40


def test_looking_at_features_changes_nothing(results):
    """A run with an embedding ends as the same run without."""
    records, embedded = embedded_runs(results)
    plain_runs = {json.dumps(one["spec"]): one["metrics"] for one in records if "embedding" not in one}
    pairs = [(json.dumps({**one["spec"], "embed": False}), one["metrics"]) for one in embedded]
    there = [(key, metrics) for key, metrics in pairs if key in plain_runs]
    assert there
    assert all(plain_runs[key] == metrics for key, metrics in there)


def test_the_page_holds_everything_and_nothing_of_this_machine(page, results, place):
    text = page.read_text()
    assert "A &lt;page&gt;" in text
    for folder in (results, place):
        assert str(folder) not in text
    assert "unknown stands in for svhn" in text
    assert "63.9 88.2 74.1" in text, "the published numbers"
    assert "Which differences exceed their deviation" in text
    assert "By corruption" in text
    figures = sum(bool(table.draw) for table in paper().values())
    assert text.count('<figure class="drawn">') == text.count("<source media=") == figures, "all of them light and dark"
    assert '<section id="gallery"' in text
    assert "accepted wrongly" in text
    assert text.count('<figure class="right">') + text.count('<figure class="wrong">') > 20
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text), "nothing is asked of the network"
    table = next(iter(view_data(text).values()))
    assert {run["row"] for run in table["runs"]} == set(table["colors"]) == {"test", "bn", "owttt"}
    assert table["highlight"] == "owttt"
    assert {run["corruption"] for run in table["runs"]} == {f"snow + contrast + glass_blur, seed {n}" for n in (0, 1)}
    assert all(len(run["curve"]) == len(run["threshold"]) == len(run["scores"]["known"]) == 5 for run in table["runs"])


def test_only_the_style_and_the_script_of_the_page_are_allowed(page):
    text = page.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1].replace("&#39;", "'")
    style, script = (
        re.search(r"<style>(.*?)</style>", text, re.S)[1],
        re.search(r"<script>(.*?)</script>", text, re.S)[1],
    )
    for content, kind in ((style, "style-src"), (script, "script-src")):
        assert f"{kind} 'sha256-{sha256(content)}';" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"<[^>]+\sstyle=", text), "the policy allows no style attribute"


def test_the_menu_tells_titles_in_the_order_of_the_paper(page, tmp_path):
    titles = menu(page.read_text())
    assert titles[:2] == ["Findings", "Tab. 8: Mixed corruptions against mixed unknowns (known for cifar10)"]
    assert titles[-1] == "Gallery"
    tables = [fake_table(name=name, label=name) for name in ("mine", "clouds", "table2", "table1")]
    found = menu(render(fill(tmp_path, tables=tables), "t"))
    assert [title.partition(":")[0] for title in found] == ["Findings", "table1", "table2", "clouds", "mine"]


def test_findings_are_means_over_the_columns(tmp_path):
    text = words_of(render(fill(tmp_path, tables=[fake_table(("test", "bn", "mine"))]), "t"))
    assert "Over 2 columns of Tab. 1: CIFAR-10-C (mnist, svhn), mine has a mean AccH of 69.5, 20.0 above the" in text
    assert "Means, highest first: mine 69.5, bn 59.5, test 49.5." in text
    assert "Behind the baseline, of 2 cells each: mine in none, bn in none." in text
    assert "numbers of one seed" in text


def test_methods_behind_the_baseline_are_told(tmp_path):
    table = fake_table(("mine", "test"))
    del table["baseline"], table["highlight"]
    text = render(fill(tmp_path, tables=[table]), "t")
    assert "mine in 2." in words_of(text), "a table of the first version is compared with its row test"
    assert text.count('class="second below"') == 2
    assert text.count(">−10.0</text>") == 3, "the chart has the mean and both columns"


def test_runs_of_no_table_are_shown_by_stream(tmp_path):
    mine = fake_run("mine", acc_h=0.7, threshold=[0.1, 0.9], options={"lr": 0.01}, color="#3f7fbf")
    table = fake_table()
    table["cells"][0]["runs"] = [{"file": "run-3.json", "corruptions": ["snow"], "seed": 0, "metrics": {}}]
    runs = [fake_run(), mine, fake_run(corruption="fog", unknown=("npz:/home/me/letters.npz@snow",)), fake_run("test")]
    text = render(fill(tmp_path, runs, [table]), "t")
    assert menu(text)[-3:] == [
        "Runs", "net: cifar10, fog 5, against letters@snow", "net: cifar10, snow 5, against mnist",
    ]  # fmt: skip
    assert "mine, lr 0.01, threshold [0.1, 0.9]" in text
    assert "8 known samples, seed 0, batch size 4" in text
    group = view_data(text)["runs-1"]
    assert [run["row"] for run in group["runs"]] == ["bn", "mine, lr 0.01, threshold [0.1, 0.9]"]
    assert len(set(group["colors"].values())) == 2, "colors are told apart"
    row = re.search(r'<th scope="row">bn</th>(.*?)</tr>', text.split('id="runs-1"')[1], re.S)[1]
    shown = re.findall(r"<span>(.*?)</span>", row)
    assert shown == ["40.0", "60.0", "50.0", "70.0", "25.0", "—", "0.25", ""], (
        "what the guard did was not recorded then"
    )
    assert "/home/me" not in text
    guarded = fake_run("mine")
    guarded["curves"]["events"] = [0, 3]
    row = re.search(r'<th scope="row">mine</th>(.*?)</tr>', render(fill(tmp_path / "more", [guarded]), "t"), re.S)[1]
    assert re.findall(r"<span>(.*?)</span>", row)[-1] == "3"


def test_what_is_usual_is_what_runs_do_by_default():
    spec = RunSpec("net", StreamSpec())
    assert {name: getattr(spec, name) for name in USUAL} == USUAL
    assert {name: getattr(spec.stream, name) for name in USUAL_STREAM} == USUAL_STREAM


def test_a_page_without_pictures_needs_no_torch(tmp_path):
    fill(tmp_path / "r", [fake_run()], [fake_table()])
    code = (
        "import sys; from pathlib import Path; from owttt.bench.report import render; "
        f"text = render(Path({str(tmp_path / 'r')!r}), 't'); assert '</html>' in text; "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_table_leads_to_no_file_outside_of_the_folder(tmp_path):
    (tmp_path / "secret.json").write_text(json.dumps(fake_run("secret")))
    table = fake_table()
    for cell, name in zip(table["cells"], ("../secret.json", str(tmp_path / "secret.json"), "link.json"), strict=False):
        cell["runs"] = [{"file": name, "corruptions": ["snow"], "seed": 0}]
    folder = fill(tmp_path / "r", [fake_run()], [table])
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    assert "secret" not in render(folder, "t")


@pytest.fixture
def injected(tmp_path):
    """A results folder in which every text tries to become a part of the page."""
    run = fake_run(BAD, corruption=BAD, unknown=(BAD,), color=BAD, options={BAD: BAD}, threshold=BAD, preset=BAD)
    run["spec"]["model"] = run["spec"]["stream"]["known"] = run["environment"]["owttt"] = BAD
    rows, columns = (BAD, "other"), (BAD, "more")
    table = fake_table(
        rows, columns, name=BAD, title=BAD, label=BAD, about=BAD, failed=[BAD], stand_ins={BAD: BAD},
        colors={BAD: BAD}, headings=dict.fromkeys(columns, BAD), environment={"owttt": BAD},
    )  # fmt: skip
    for cell in table["cells"]:
        placed = {"seed": 0, "metrics": {"acc_h": 0.5}}
        cell["runs"] = [{**placed, "file": "run-0.json", "corruptions": [name]} for name in (BAD, "fog")]
    table["metrics"][BAD] = [BAD, "acc_h"]
    return fill(tmp_path / "r", [run, {**run, "seconds": []}], [table])


class Tags(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self):
        super().__init__()
        self.scripts, self.handlers, self.sources = 0, [], []

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.sources += [value for name, value in attrs if name == "src"]


def test_nothing_of_a_results_folder_becomes_a_part_of_the_page(injected):
    text = render(injected, BAD)
    tags = Tags()
    tags.feed(text)
    assert tags.scripts == 2, "the data and our own"
    assert not tags.handlers
    assert all(source.startswith("data:") for source in tags.sources)
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert text.count("{{7*7}}") > 20, "it is shown as it is"
    assert ">49" not in text


@needs_browser
def test_a_browser_runs_nothing_of_a_results_folder(injected, tmp_path):
    seen, log = probe(render(injected, BAD), tmp_path, 1200)
    assert "CONSOLE" not in log, log
    assert (seen["scripts"], seen["handlers"]) == (3, 0), "ours, the data and the probe"
    assert seen["title"] == BAD
    assert seen["curves"] == 5, "two rows of two runs in one of two columns of the same heading, and the loose run"


def test_pictures_of_a_data_set_are_shown_only_if_it_is_named(results, place, tmp_path, capsys):
    known, unknown = f"npz:{place / 'known.npz'}", f"npz:{place / 'unknown.npz'}"
    path = tmp_path / "p.html"
    for names, shown in (("", False), (known, False), (f"{known},{unknown}", True), ("known,unknown", True)):
        assert main(["report", str(results), "-o", str(path), "--gallery", names]) == 0
        assert ('<section id="gallery"' in path.read_text()) is shown
        assert ('<figure class="strip">' in path.read_text()) is shown
    gallery = path.read_text().split('<section id="gallery"')[1]
    assert "against noise" not in gallery, "noise was not named"
    capsys.readouterr()


def test_a_gallery_of_data_that_is_not_there(results, tmp_path, capsys):
    assert main(["report", str(results), "-o", str(tmp_path / "p.html"), "--gallery", "known,mnits"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "No run draws from a data set 'mnits'. There are: known, noise, unknown; or all." in said


def test_pictures_are_of_the_data_the_run_met_or_none(results, tmp_path, capsys):
    folder = tmp_path / "results"
    shutil.copytree(results, folder)
    for path in folder.glob("*.json"):
        record = json.loads(path.read_text())
        record["fingerprints"]["data"] = "other"
        write_json(path, {name: value for name, value in record.items() if name != SEAL})
    assert main(["report", str(folder), "-o", str(tmp_path / "p.html"), "--gallery", "all"]) == 0
    text = (tmp_path / "p.html").read_text()
    assert "No pictures: the data or the model is no longer what this run met." in text
    assert "accepted wrongly" not in text
    capsys.readouterr()


def test_a_text_without_folders():
    said = plain("failed: FileNotFoundError: cifar10: /root/data/cifar10/test_batch is missing, see a/b or 1/2")
    assert said == "failed: FileNotFoundError: cifar10: test_batch is missing, see a/b or 1/2"
    assert plain('"npz:/home/me/x.npz", "C:\\data\\y.npz"') == '"npz:x.npz", "y.npz"'
    assert plain("npz:/home/John Doe/my data/x.npz") == "npz:x.npz"


def test_an_old_table_is_refused(tmp_path, capsys):
    (tmp_path / "tables").mkdir()
    for text, message in (("{}", "not a table of this version"), ("{", "not JSON")):
        (tmp_path / "tables" / "table1-1.json").write_text(text)
        assert main(["report", str(tmp_path)]) == 1
        assert message in capsys.readouterr().err


def test_tables_as_text(results, tmp_path, capsys):
    for form, ending, word in (("markdown", "md", "|---|"), ("csv", "csv", "published"), ("latex", "tex", r"\midrule")):
        path = tmp_path / f"tables.{ending}"
        assert main(["report", str(results), "--format", form, "-o", str(path)]) == 0
        assert word in path.read_text()
    capsys.readouterr()


def test_a_page_of_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no results there; `owttt run --results .* makes some"):
        render(tmp_path, "t")


@needs_browser
@pytest.mark.parametrize("width", [360, 1200])
def test_a_browser_renders_it_and_the_scrubber_works(page, tmp_path, width):
    seen, log = probe(page.read_text(), tmp_path, width)
    assert "CONSOLE" not in log, log
    assert seen["tables"] > 10
    assert seen["curves"] > 3
    assert seen["bars"] > 50
    assert seen["moved"], "the scrubber changes the histogram"
    assert seen["said"] == "batch 2 of 5"
    assert len(seen["images"]) > 20
    assert all(seen["images"]), "every picture is shown"
    assert seen["wide"] <= 0, "nothing sticks out"
    assert (seen["side"], seen["bar"]) == (width > 1000, width < 1000)
    assert seen["width"] == width
    assert seen["fixed"] or width > 1000, "the first column stays where it is"


@needs_browser
def test_a_page_that_asks_for_something_would_be_caught(page, tmp_path):
    probed = tmp_path / "probed.html"
    bad = '<img src="http://localhost/picture.png"><p style="color: red">red</p><script>alert(1)</script>'
    probed.write_text(page.read_text().replace("</body>", f"{bad}</body>"))
    _, log = browse(probed, tmp_path / "profile", 800)
    assert log.count("Content Security Policy") >= 3


def sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def probe(text: str, folder: Path, width: int) -> tuple[dict, str]:
    """Open a page with the probe allowed in it, and return what that saw and the log."""
    allowed = text.replace("script-src ", f"script-src &#39;sha256-{sha256(PROBE)}&#39; ", 1)
    (folder / "probed.html").write_text(allowed.replace("</body>", f"<script>{PROBE}</script></body>"))
    frame = folder / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)))
    dom, log = browse(frame, folder / "profile", width + 50)
    return json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", dom)[1])), log


def browse(path: Path, profile: Path, width: int) -> tuple[str, str]:
    """Open a page in a browser without a window and without network, and return what it made of it and what it said."""
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --dump-dom"
    flags += " --disable-component-update --disable-sync --host-resolver-rules=MAP*~NOTFOUND"
    flags += " --virtual-time-budget=4000 --enable-logging=stderr"
    done = subprocess.run(
        [BROWSER, *flags.split(), f"--user-data-dir={profile}", f"--window-size={width},900", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout, done.stderr


def test_a_gallery_imports_no_code_that_a_record_names(tmp_path):
    """A results folder may be a stranger's."""
    named = "tests.bench.test_report:never"
    stream = {"known": named, "unknown": ["noise"], "corruptions": [], "severity": 5}
    record = {
        "spec": {"model": "m", "method": "test", "stream": stream},
        "curves": {"threshold": [0.5]},
        "examples": {},
    }
    (shown,) = [_gallery(record)]
    assert f"{named} would have to be imported and called, which a page never does" in shown.problem


def never(split):
    raise AssertionError("it was called")
