"""The command line as a user types it."""

import argparse
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import owttt
from owttt import models
from owttt.bench import running
from owttt.bench.running import Run
from owttt.bench.spec import RunSpec, paper_preset
from owttt.bench.steps import outcome
from owttt.cli import main
from owttt.cli import run as run_command
from owttt.cli.arguments import option
from owttt.data.catalog import catalog
from owttt.models.registry import WEIGHTS

NAMES = ("red", "green", "blue")


def run(place, *more):
    words = ["run", "--model", str(place / "model"), "--known", f"npz:{place / 'known.npz'}", "--out"]
    words += [
        str(place / "result.json"),
        "--results",
        str(place / "results"),
        "--unknown",
        f"npz:{place / 'unknown.npz'}",
        "--batch-size",
        "10",
        *more,
    ]
    return main(words)


def test_a_run_that_would_diverge_says_so_and_answers_all_the_same(place, capsys):
    with pytest.warns(UserWarning, match=r"Batch 0: .* not finite, or grown beyond reason \(rolled back\)"):
        assert run(place, "--method", "ttac", "--set", "lr=1e30", "--preset", "cifar10-c") == 0
    assert {event["kind"] for event in result(place)["events"]} == {"rolled back"}
    assert "The guard acted (rolled back), last at batch 5" in " ".join(capsys.readouterr().out.split())
    plain = result(place)["metrics"]
    assert run(place, "--method", "test") == 0
    assert plain["acc_closed"] == result(place)["metrics"]["acc_closed"], "nothing was learned"


def result(place):
    return json.loads((place / "result.json").read_text())


@pytest.mark.parametrize("method", owttt.METHODS)
def test_run_writes_everything_a_number_depends_on(place, method, capsys):
    assert run(place, "--method", method, "--corruption", "fog", "--severity", "3", "--seed", "4") == 0
    written = result(place)
    shown = capsys.readouterr().out
    assert method in shown
    for name in ("acc_s", "acc_n", "acc_h", "acc_closed", "known_rejected"):
        assert f"{100 * written['metrics'][name]:.1f}" in shown, name
    assert written["kind"] == "owttt run"
    assert written["data"] == {
        "known": 30, "unknown": {f"npz:{place / 'unknown.npz'}": 30}, "samples": 60, "batches": 6,
    }  # fmt: skip
    assert len(written["curves"]["acc_h"]) == 6
    assert len(written["curves"]["threshold"]) == 6
    assert ("pool" in written["curves"]) == (method == "owttt")
    assert np.sum(written["scores"]["known"]) == 30
    assert np.sum(written["scores"]["unknown"]) == 30
    assert written["environment"]["torch"] == torch.__version__
    assert written["adapter"]["method"] == method
    spec = RunSpec.parse(written["spec"])
    assert spec.stream.seed == 4
    assert spec.stream.corruptions == ("fog",)
    assert json.loads(json.dumps(spec.describe())) == written["spec"]


def test_a_written_spec_gives_the_same_result_again(place):
    run(place, "--corruption", "snow", "--set", "lr=0.01", "--set", "pool_size=7", "--threshold", "0.1,0.9")
    written = result(place)
    spec = RunSpec.parse(written["spec"])
    assert spec.options == {"lr": 0.01, "pool_size": 7}
    assert spec.threshold == (0.1, 0.9)
    again = outcome(list(Run(spec).steps()))
    assert again["metrics"] == pytest.approx(written["metrics"], nan_ok=True)
    assert again["scores"] == written["scores"]


def test_a_stream_of_known_classes_only(place, capsys):
    words = ["run", "--model", str(place / "model"), "--known", f"npz:{place / 'known.npz'}", "--batch-size", "10"]
    words += ["--results", str(place / "results")]
    assert main([*words, "--threshold", "off", "--out", str(place / "result.json")]) == 0
    assert result(place)["metrics"]["acc_n"] is None
    assert "—" in capsys.readouterr().out


def test_remarks_say_what_the_row_does_not(place, capsys):
    for method in ("test", "owttt+"):
        assert run(place, "--method", method, "--batch-size", "60", "--threshold", "0.5") == 0
        assert "One batch only" not in capsys.readouterr().out, "it learns nothing, or from the batch it answers"
    assert run(place, "--method", "tent", "--batch-size", "60", "--threshold", "0.5") == 0
    assert "One batch only: it was predicted before anything could be learned" in capsys.readouterr().out
    assert run(place, "--method", "test", "--score", "energy") == 0
    assert result(place)["curves"]["threshold"] != [None] * 6, "or the next line shows nothing"
    assert "No threshold was found" not in capsys.readouterr().out
    assert run(place, "--method", "test", "--score", "tests.cli.test_cli:no_score") == 0
    assert result(place)["curves"]["threshold"] == [None] * 6
    assert "No threshold was found, so nothing was rejected" in capsys.readouterr().out


def no_score(out, source):
    """A score that tells nothing apart."""
    del source
    return torch.full((len(out.features),), 0.5)


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert f"owttt {owttt.__version__}" in capsys.readouterr().out


def test_streams_of_all_kinds(place):
    assert run(place, "--corruption", "fog,snow", "--phases", "recurring", "--cycles", "2", "--share", "bursts") == 0
    assert run(place, "--dirichlet", "0.1", "--ratio", "0.5", "--number", "20", "--share", "rising") == 0
    assert result(place)["data"]["samples"] == 30
    written = result(place)["spec"]["stream"]
    (place / "stream.json").write_text(json.dumps(written))
    words = ["run", "--model", str(place / "model"), "--stream", str(place / "stream.json"), "--seed", "3"]
    words += ["--results", str(place / "results")]
    assert main([*words, "--out", str(place / "result.json")]) == 0
    assert result(place)["spec"]["stream"] == written | {"seed": 3}
    (place / "stream.json").write_text("{ no json")
    assert main(words) == 1


def test_results_cannot_be_lost_to_a_bad_path(place, capsys, monkeypatch):
    def never(*_):
        raise AssertionError("it began to run")

    monkeypatch.setattr(Run, "do", never)
    (place / "file").touch()
    for out in (place, place / "file" / "r.json"):
        assert run(place, "--seed", "77", "--out", str(out)) == 1
        assert str(place) in capsys.readouterr().err


def test_brackets_in_paths_are_no_markup(place, capsys):
    assert run(place, "--method", "test", "--results", str(place / "[red]")) == 0
    assert "[red]" in capsys.readouterr().err


def test_runs_are_found_again_and_told_apart(place, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(place)
    words = ["run", "--model", "model", "--known", "npz:known.npz", "--unknown", "npz:unknown.npz", "--method", "test"]
    words += ["--results", str(tmp_path), "--corruption", "fog"]
    assert main(words) == 0
    assert main([*words, "--seed", "1"]) == 0
    assert "test: written to" in capsys.readouterr().err
    assert main(words) == 0
    assert "test: was there" in capsys.readouterr().err
    names = [path.name for path in tmp_path.glob("*.json")]
    assert len(names) == 2
    assert all(re.fullmatch(r"test-[0-9a-f]{16}\.json", name) for name in names)


def test_several_methods_are_one_table(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(place, "--method", "all", "--results", str(tmp_path)) == 1, "--out takes one record"
    words = ["run", "--model", str(place / "model"), "--known", f"npz:{place / 'known.npz'}", "--batch-size", "10"]
    words += ["--unknown", f"npz:{place / 'unknown.npz'}", "--results", str(tmp_path)]
    capsys.readouterr()
    assert main([*words, "--method", "all"]) == 0
    shown = capsys.readouterr().out
    lines = [line.split()[0] for line in shown.splitlines() if line.split()[:1] and line.split()[0] in owttt.METHODS]
    assert lines == list(owttt.METHODS)
    assert "…" not in shown, "nothing is cut at 80 columns"
    assert len(list(tmp_path.glob("*.json"))) == len(owttt.METHODS)


def test_a_run_is_found_by_bench(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path / "root"))
    known, unknown = (f"npz:{place / name}" for name in ("known.npz", "unknown.npz"))
    words = ["--model", str(place / "model"), "--number", "20", "--results", str(tmp_path / "r")]
    more = ["--known", known, "--unknown", f"{unknown},{unknown},{unknown}", "--corruption", "snow,contrast,glass_blur"]
    more += ["--preset", "cifar10-c", "--repeat", "--unknown", f"noise,{unknown},{unknown}"]
    assert main(["run", *words, *more, "--method", "bn"]) == 0
    (made,) = (tmp_path / "r").glob("*.json")
    stand_ins = [f"cifar10={known}", f"mnist={unknown}", f"svhn={unknown}"]
    flags = [word for pair in stand_ins for word in ("--stand-in", pair)]
    assert main(["bench", "mixed", *words, *flags, "--methods", "bn"]) == 0
    assert list((tmp_path / "r").glob("*.json")) == [made], "it was not run again"
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "owtt"], "No method 'owtt'. Did you mean owttt"),
        (["--corruption", "sno"], "No corruption 'sno'. Did you mean snow"),
        (["--known", "cifar11"], "No data set 'cifar11'. Did you mean cifar10"),
        (["--unknown", "mnst"], "No data set 'mnst'. Did you mean mnist"),
        (["--model", "cifar10-resnet27"], "No model 'cifar10-resnet27'."),
        (["--preset", "cifar10"], "No preset 'cifar10'. Did you mean cifar10-c"),
        (["--set", "speed=3"], "Method 'owttt' has no option ['speed']"),
        (["--known", "svhn"], "owttt data get svhn"),
        (["--severity", "9"], "severity must be 1 to 5, got 9"),
        (["--batch-size", "0"], "batch_size must be a whole number, at least 1, got 0"),
        (["--share", "sometimes"], "share must be one of"),
        (["--score", "cosin"], "No score 'cosin'. Did you mean cosine"),
        (["--threshold", "adaptve"], "No threshold 'adaptve'. Did you mean adaptive"),
        (["--restrict"], "one restricted to some classes never does"),
        (["--ratio", "9"], "lower num_samples or ratio, or set repeat"),
        (["--source", "nothing"], "No data set 'nothing'"),
        (["--stream", "gone.json"], "gone.json"),
        (["--set", "lr=abc"], "Option 'lr' of method 'owttt' must be a number, 0.001 by default; got 'abc'"),
        (["--set", "pool_size=1.5"], "Option 'pool_size' of method 'owttt' must be a whole number"),
        (["--set", "lr=none"], "Option 'lr' of method 'owttt' must be a number"),
        (["--set", "lr=true"], "Option 'lr' of method 'owttt' must be a number"),
        (["--method", ""], "--method needs a name"),
        (["--method", "test", "--set", "lr=1"], "Method 'test' has no option ['lr']"),
        (["--known", "npz:known.npz@snow"], "a known set is named without its corruption"),
        (["--method", "nowhere.at_all:Mine"], "nowhere.at_all cannot be imported"),
        (["--method", "owttt.methods:METHODS"], "expected a class derived from owttt.Method"),
        (["--score", "owttt.functional:no_such"], "owttt.functional has no no_such"),
        (["--model", "owttt.models:load"], "load() missing 1 required positional argument"),
        (["--unknown", "npz:README.md"], "README.md: not a readable npz file"),
    ],
)
def test_mistakes_are_one_clear_line(place, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path))
    (place / "result.json").unlink(missing_ok=True)
    assert run(place, *words) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert not (place / "result.json").exists()


@pytest.mark.parametrize("words", [["--set", "lr"], ["--threshold", "1,2,3"], ["--window", "0"]])
def test_words_that_cannot_be_read(place, words):
    with pytest.raises(SystemExit):
        run(place, *words)


def test_source_statistics_may_be_fitted_on_other_data(place):
    assert run(place, "--source", f"npz:{place / 'known.npz'}", "--method", "test") == 0
    fitted = result(place)
    assert run(place, "--method", "test") == 0
    assert fitted["metrics"]["auroc"] == pytest.approx(result(place)["metrics"]["auroc"])
    (place / "model" / "source.safetensors").rename(place / "kept")
    try:
        running.forget()
        assert run(place) == 1
    finally:
        (place / "kept").rename(place / "model" / "source.safetensors")


def test_only_the_known_classes_compete(place, tmp_path):
    with np.load(place / "known.npz") as file:
        chosen = file["y_test"] != 1
        names = np.array(["red", "green", "blue"])
        two = {"x": file["x_test"][chosen], "y": file["y_test"][chosen], "names": names}
        np.savez(tmp_path / "two.npz", **two)
    words = ["--known", f"npz:{tmp_path / 'two.npz'}", "--restrict", "--source", f"npz:{place / 'known.npz'}"]
    assert run(place, *words, "--ratio", "0.5") == 0
    assert result(place)["spec"]["restrict"] is True
    assert result(place)["data"]["known"] == 20


def test_presets_follow_the_paper():
    assert paper_preset("cifar10-resnet11", "cifar10") == "cifar10-c"
    assert paper_preset("cifar10-resnet11", "cifar10-c") == "cifar10-c"
    assert paper_preset("cifar100-resnet11", "npz:val.npz") == "cifar100-c"
    assert paper_preset("imagenet-resnet50", "imagenet-r") == "imagenet-r"
    assert paper_preset(str(WEIGHTS / "modelnet10-dgcnn"), "npz:mine.npz") == "modelnet40-c"
    assert paper_preset("mine", "npz:mine.npz") is None


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for name in (*owttt.METHODS, *models.names(), "resnet56", "gaussian_noise", "spatter", "cifar10-c"):
        assert name in shown


def test_data_list_says_what_where_from_and_whether_it_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path))
    assert main(["data", "list"]) == 0
    shown = capsys.readouterr().out
    for name, entry in catalog().items():
        assert re.search(rf"^ *{name} .*\bno\b", shown, re.MULTILINE), name
        assert entry.license.split(",")[0].split()[0] in shown


def test_data_get_tries_all_and_tells_what_failed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path))
    assert main(["data", "get", "imagenet", "3d-mnist"]) == 1
    shown = capsys.readouterr().err
    assert "image-net.org" in shown
    assert "kaggle.com" in shown
    assert main(["data", "get", "mnits"]) == 1
    assert "Did you mean mnist" in capsys.readouterr().err


def test_noise_has_nothing_to_fetch(capsys):
    assert main(["data", "get", "noise"]) == 1
    assert "noise is computed and has no files to fetch" in capsys.readouterr().err


def test_a_terminal_that_knows_no_greek(place):
    words = ["run", "--model", str(place / "model"), "--known", f"npz:{place / 'known.npz'}", "--method", "test"]
    words += ["--results", str(place / "greek"), "--unknown", f"npz:{place / 'unknown.npz'}"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    subprocess.run([sys.executable, "-m", "owttt", *words], check=True, capture_output=True, env=environment)


def test_a_contact_sheet_of_clouds(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(2, 64, 3)).astype(np.float32)
    np.savez(tmp_path / "clouds.npz", x=x / 4, y=[0, 1])
    assert (
        main(["sheet", "--data", f"npz:{tmp_path / 'clouds.npz'}", "--index", "1", "--out", str(tmp_path / "s.png")])
        == 0
    )
    with Image.open(tmp_path / "s.png") as image:
        assert image.size == (130 + 6 * 98, 15 * 98)
        assert len(set(image.convert("RGB").get_flattened_data())) > 50
    capsys.readouterr()


def test_a_contact_sheet(place, capsys):
    assert main(["sheet", "--data", f"npz:{place / 'known.npz'}", "--index", "99"]) == 1
    assert "has images 0 … 29, got [99]" in capsys.readouterr().err
    words = ["sheet", "--data", f"npz:{place / 'known.npz'}", "--size", "16", "--index", "0", "--out"]
    assert main([*words, str(place / "sheet.png")]) == 0
    with Image.open(place / "sheet.png") as image:
        assert image.size == (130 + 6 * 34, 19 * 34)
        assert len(np.unique(np.asarray(image).reshape(-1, 3), axis=0)) > 1000


def test_options_are_read_as_they_are_meant():
    words = ("alignment=false", "expansion=True", "max_norm=none", "lr=1e-4", "clustering=source", "bounds=(0.4, 1)")
    assert dict(map(option, words)) == {
        "alignment": False, "expansion": True, "max_norm": None, "lr": 1e-4, "clustering": "source", "bounds": (0.4, 1)
    }  # fmt: skip
    with pytest.raises(argparse.ArgumentTypeError, match="expected name=value, got 'lr'"):
        option("lr")


@pytest.mark.parametrize(
    ("words", "preset", "threshold"),
    [
        ([], None, "evidence"),
        (["--preset", "none"], None, "evidence"),
        (["--preset", "cifar10-c"], "cifar10-c", "adaptive"),
        (["--threshold", "adaptive"], None, "adaptive"),
        (["--preset", "cifar10-c", "--threshold", "0.2"], "cifar10-c", 0.2),
    ],
)
def test_our_method_is_run_as_wrap_does(words, preset, threshold):
    parser = argparse.ArgumentParser()
    run_command.add(parser)
    (spec,) = run_command.specs_of(parser.parse_args(["--known", "cifar10", "--method", "owttt+", *words]))
    assert (spec.preset, spec.threshold) == (preset, threshold)
    (paper,) = run_command.specs_of(parser.parse_args(["--known", "cifar10", "--method", "owttt"]))
    assert (paper.preset, paper.threshold) == ("cifar10-c", "adaptive")
