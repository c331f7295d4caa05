"""Figures and the page, made by the commands and looked at by a browser where there is one."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from owttt.bench.figures import DRAW
from owttt.bench.report.sections import plain as plain_text
from owttt.bench.tables import paper
from owttt.cli import main

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
PROBE = """
const scrubber = document.querySelector("input[type=range]"), scores = document.querySelector(".scores");
const before = scores.innerHTML;
scrubber.value = 1;
scrubber.dispatchEvent(new Event("input"));
const seen = {
  tables: document.querySelectorAll("table").length, curves: document.querySelectorAll(".curves path").length,
  bars: document.querySelectorAll(".scores rect").length, moved: before !== scores.innerHTML,
  said: document.querySelector("output").textContent,
  images: [...document.images].map((one) => one.complete && one.naturalWidth > 0),
  wide: document.documentElement.scrollWidth - window.innerWidth,
};
document.body.append(Object.assign(document.createElement("pre"), { id: "probe", textContent: JSON.stringify(seen) }));
"""
"""Moves the scrubber and tells what is there."""


@pytest.fixture(scope="module")
def results(place, tmp_path_factory):
    """A results folder with a table of two seeds, and every figure."""
    folder = tmp_path_factory.mktemp("results")
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OWTTT_DATA", str(root))
        patch.setenv("COLUMNS", "200")
        words = ["--model", str(place / "model"), "--number", "20", "--batch-size", "8", "--results", str(folder)]
        for name in ("cifar10", "mnist", "svhn"):
            words += ["--stand-in", f"{name}=npz:{place / ('known.npz' if name == 'cifar10' else 'unknown.npz')}"]
        assert main(["bench", "mixed", *words, "--methods", "test,bn,owttt", "--seeds", "0,1"]) == 0
        assert main(["bench", "keep", *words, "--corruptions", "snow,fog", "--columns", "mnist"]) == 0
        for name, grid in paper().items():
            if grid.draw:
                some = ["--corruptions", "snow,fog"] if len(grid.corruptions) > 3 else []
                some += ["--columns", "mnist,svhn"] if name == "fig-thresholds" else []
                assert main(["bench", name, *words, *some]) == 0
    return folder


def test_every_figure_is_drawn(results):
    drawn = {path.name.rpartition("-")[0] for path in (results / "figures").glob("*.png")}
    figures = {name: grid.draw for name, grid in paper().items() if grid.draw}
    assert drawn == set(figures)
    assert set(figures.values()) == set(DRAW)
    for path in (results / "figures").glob("*.png"):
        with Image.open(path) as image:
            assert len(set(image.convert("RGB").resize((64, 64)).get_flattened_data())) > 5, f"{path.name} is not blank"
        vector = path.with_suffix(".svg").read_text()
        assert "<svg" in vector
        assert "dc:date" not in vector, "the same every time"


def test_embeddings_are_of_the_same_samples_at_every_stage(results):
    path = min((results / "embeddings").glob("owttt-*.json"))
    embedding = json.loads(path.read_text())["embedding"]
    assert [stage["share"] for stage in embedding["stages"]] == [0.25, 0.5, 0.75, 1.0]
    assert all(len(stage[key]) == 40 for stage in embedding["stages"] for key in ("x", "y", "predicted"))
    assert len(embedding["labels"]) == 40


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    """The page of these results, with a gallery."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    assert main(["report", str(results), "-o", str(path), "--title", "A <page>", "--gallery", "all"]) == 0
    return path


def test_the_page_holds_everything_and_nothing_of_this_machine(page, results, place):
    text = page.read_text()
    assert "A &lt;page&gt;" in text
    for folder in (results, place):
        assert str(folder) not in text
    assert "unknown stands in for svhn" in text
    assert "63.9 88.2 74.1" in text, "the published numbers"
    assert "Which differences exceed their deviation" in text
    assert "By corruption" in text
    assert text.count("<figure class=paper>") == sum(bool(grid.draw) for grid in paper().values())
    assert "<h2 id=gallery>" in text
    assert "accepted wrongly" in text
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text), "nothing is asked of the network"
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    table = data["tables"][0]
    assert {run["row"] for run in table["runs"]} == {"test", "bn", "owttt"}
    assert {run["look"] for run in table["runs"]} == {f"snow + contrast + glass_blur, seed {n}" for n in (0, 1)}
    assert all(len(run["curve"]) == len(run["threshold"]) == len(run["scores"]["known"]) == 5 for run in table["runs"])


def test_pictures_of_a_data_set_are_shown_only_if_it_is_named(results, place, tmp_path, capsys):
    known, unknown = f"npz:{place / 'known.npz'}", f"npz:{place / 'unknown.npz'}"
    path = tmp_path / "p.html"
    for names, shown in (("", False), (f"{known},mnist", False), (f"{known},{unknown}", True)):
        assert main(["report", str(results), "-o", str(path), "--gallery", names]) == 0
        assert ("<h2 id=gallery>" in path.read_text()) is shown
    assert "against noise" not in path.read_text(), "noise was not named"
    capsys.readouterr()


def test_pictures_are_of_the_data_the_run_met_or_none(results, tmp_path, capsys):
    folder = tmp_path / "results"
    shutil.copytree(results, folder)
    for path in folder.glob("owttt-*.json"):
        record = json.loads(path.read_text())
        record["fingerprints"]["data"] = "other"
        path.write_text(json.dumps(record))
    assert main(["report", str(folder), "-o", str(tmp_path / "p.html"), "--gallery", "all"]) == 0
    text = (tmp_path / "p.html").read_text()
    assert "No pictures: the data or the model is no longer what this run met." in text
    assert "accepted wrongly" not in text
    capsys.readouterr()


def test_looking_at_features_changes_nothing(results):
    """A run with an embedding ends as the same run without."""
    pairs = 0
    for path in (results / "embeddings").glob("*.json"):
        plain = results / path.name
        if plain.exists():
            pairs += 1
            assert json.loads(plain.read_text())["metrics"] == json.loads(path.read_text())["metrics"]
    assert pairs


def test_a_text_without_folders():
    said = plain_text("failed: FileNotFoundError: cifar10: /root/data/cifar10/test_batch is missing, see a/b or 1/2")
    assert said == "failed: FileNotFoundError: cifar10: test_batch is missing, see a/b or 1/2"
    assert plain_text('"npz:/home/me/x.npz", "C:\\data\\y.npz"') == '"npz:x.npz", "y.npz"'


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


def test_a_page_of_nothing(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "no table there; `owttt bench NAME --results" in capsys.readouterr().err


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; apt-get install chromium")
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_renders_it_and_the_scrubber_works(page, tmp_path, width):
    text = page.read_text()
    assert "default-src 'none'" in text, "the browser itself keeps the page from asking for anything"
    probed = tmp_path / "probed.html"
    probed.write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"))
    dom, log = browse(probed, tmp_path / "profile", width)
    assert "CONSOLE" not in log, log
    seen = json.loads(re.search(r'id="probe">(.*?)</pre>', dom)[1])
    assert seen["tables"] > 10
    assert seen["curves"] > 3
    assert seen["bars"] > 50
    assert seen["moved"], "the scrubber changes the histogram"
    assert seen["said"] == "batch 2 of 5"
    assert len(seen["images"]) > 20
    assert all(seen["images"]), "every picture is shown"
    assert seen["wide"] <= 0, "nothing sticks out"


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; apt-get install chromium")
def test_a_page_that_asks_for_something_would_be_caught(page, tmp_path):
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</body>", '<img src="http://localhost/picture.png"></body>'))
    _, log = browse(probed, tmp_path / "profile", 800)
    assert "Content Security Policy" in log


def browse(path: Path, profile: Path, width: int) -> tuple[str, str]:
    """Open a page in a browser without a window and without network, and return what it made of it and what it said."""
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --dump-dom"
    flags += " --host-resolver-rules=MAP*~NOTFOUND --virtual-time-budget=4000 --enable-logging=stderr"
    done = subprocess.run(
        [BROWSER, *flags.split(), f"--user-data-dir={profile}", f"--window-size={width},900", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout, done.stderr
