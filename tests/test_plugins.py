"""Anything by name can be somebody else's: by path, and by entry points, in several processes too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import owttt
from owttt import models
from owttt._utils import plugins
from owttt.cli import main
from owttt.data import registry
from owttt.detector import as_score
from owttt.methods import find_method

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
STREAM = ["--known", "own_parts:shapes", "--corruption", "fog", "--unknown", "own_parts:stripes", "--batch-size", "50"]
PARTS = ["--model", "own_parts:network", "--source", "own_parts:shapes", "--score", "own_parts:distance"]


@pytest.fixture
def here(monkeypatch, tmp_path):
    """The examples' folder as the working folder, as a user would have it."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path / "root"))
    monkeypatch.setenv("COLUMNS", "120")
    plugins.registered.cache_clear()
    yield tmp_path
    plugins.registered.cache_clear()


def test_a_path_is_told_from_other_names():
    for path in ("pkg.module:Class", "module:name", "a.b.c:d.e"):
        assert plugins.is_path(path)
    for other in ("owttt", "npz:data/x.npz", "cifar10@snow", "ttt++", "C:\\x", "timm:resnet-18"):
        assert not plugins.is_path(other)


def test_parts_by_path_run(here, capsys):
    words = ["run", *PARTS, *STREAM, "--method", "test,own_method:PseudoLabel", "--results", str(here / "r")]
    assert main(words) == 0
    assert "own_method:PseudoLabel" in capsys.readouterr().out
    records = [json.loads(path.read_text()) for path in sorted((here / "r").glob("*.json"))]
    assert [record["adapter"]["method"] for record in records] == ["pseudo-label", "test"]
    assert {record["adapter"]["score"] for record in records} == {"own_parts:distance"}
    assert main(["report", str(here / "r"), "-o", str(here / "page.html")]) == 0
    assert "own_method:PseudoLabel" in (here / "page.html").read_text()


def test_a_row_beside_the_seven_in_two_processes(here, capsys):
    (here / "mine.toml").write_text(
        '[mine]\ntitle = "Shapes"\nlabel = "Mine"\nmodel = "own_parts:network"\nknown = "own_parts:shapes"\n'
        'corruptions = ["fog", "snow"]\nrows = ["test", "bn"]\ncolumns = ["own_parts:stripes"]\n'
        'metrics = ["auroc", "known_rejected"]\n'
    )
    words = ["bench", "--file", str(here / "mine.toml"), "mine", "--source", "own_parts:shapes", "--num-samples", "40"]
    words += ["--methods", "test,own_method:PseudoLabel", "--batch-size", "20", "--jobs", "2"]
    assert main([*words, "--results", str(here / "r")]) == 0
    shown = capsys.readouterr().out
    assert "own_method:PseudoLabel" in shown
    assert "AUROC" in shown
    assert len(list((here / "r").glob("*.json"))) == 4
    assert main(["bench", "--file", str(here / "mine.toml"), "--list"]) == 0
    assert "Mine, Shapes" in capsys.readouterr().out


def test_weights_go_into_the_network_that_a_function_makes(here):
    network = models.load("own_parts:network", classes=("a", "b", "c")).network
    state = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    torch.save(state, here / "w.pt")
    loaded = models.load("own_parts:network", weights=here / "w.pt", classes=("a", "b", "c"))
    assert all(not value.any() for value in loaded.network.state_dict().values())
    torch.save({"other": torch.zeros(1)}, here / "w.pt")
    with pytest.raises(ValueError, match="these weights do not fit the network"):
        models.load("own_parts:network", weights=here / "w.pt", classes=("a", "b", "c"))
    (here / "bad.pt").write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"bad\.pt: not a readable file of weights"):
        models.load("own_parts:network", weights=here / "bad.pt", classes=("a", "b", "c"))
    with pytest.raises(ValueError, match="a bare network does not know its classes"):
        models.load("own_parts:network")
    with pytest.raises(ValueError, match=r"weights go with package\.module:function"):
        models.load("cifar10-vit", weights=here / "w.pt")


def a_word(split):
    """What is no data set."""
    return split


class Evil:
    """What a pickle must not be able to do."""

    def __reduce__(self):
        return os.system, ("touch evil",)


def test_weights_cannot_run_code(here, monkeypatch):
    monkeypatch.chdir(here)
    torch.save({"weight": Evil()}, here / "evil.pt")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    with pytest.raises(ValueError, match=r"evil\.pt: not a readable file of weights"):
        models.load("own_parts:network", weights=here / "evil.pt", classes=("a", "b", "c"))
    assert not (here / "evil").exists()


def test_mistakes_in_paths_are_told(here):
    with pytest.raises(ValueError, match="nowhere cannot be imported"):
        find_method("nowhere:Mine")
    with pytest.raises(ValueError, match="own_parts has no Nothing"):
        find_method("own_parts:Nothing")
    with pytest.raises(TypeError, match=r"expected a class derived from owttt\.Method"):
        find_method("own_parts:network")
    with pytest.raises(TypeError, match="a score is a function"):
        as_score("own_parts:Arrays.__doc__")
    with pytest.raises(ValueError, match=r"expected an owttt\.data\.Dataset or arrays"):
        registry.load("tests.test_plugins:a_word")


PACKAGE = """
[owttt.methods]
pseudo = own_method:PseudoLabel
[owttt.scores]
distance = own_parts:distance
[owttt.models]
tiny = own_parts:network
[owttt.datasets]
shapes = own_parts:shapes
stripes = own_parts:stripes
"""


def test_packages_register_theirs(here, capsys):
    """A package that is installed (its metadata is on the path) brings names of its own."""
    info = here / "site" / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(PACKAGE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(here / "site"), str(EXAMPLES)))}

    def command(*words):
        done = subprocess.run(
            [sys.executable, "-m", "owttt", *words],
            capture_output=True,
            text=True,
            env=environment,
            cwd=here,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = command("list")
    assert all(name in listed for name in ("pseudo", "distance", "tiny", "shapes", "stripes"))
    stream = ["--known", "shapes", "--corruption", "fog", "--unknown", "stripes", "--batch-size", "50"]
    parts = ["--model", "tiny", "--source", "shapes", "--score", "distance", "--method", "test,pseudo"]
    assert "pseudo" in command("run", *parts, *stream, "--results", str(here / "r"))
    assert len(list((here / "r").glob("*.json"))) == 2
    assert owttt.METHODS.keys() == {"test", "bn", "tent", "shot", "ttt++", "ttac", "owttt", "owttt+"}, "ours are ours"
