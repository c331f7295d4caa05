"""Tables of the paper as they are run: choices, stand-ins, means over corruptions and seeds, the command."""

import json
import math

import pytest

from owttt.bench.selection import Selection, summarize
from owttt.bench.tables import find, paper
from owttt.cli import main


def test_choices_and_stand_ins():
    selection = Selection(
        find("table1"),
        num_samples=200,
        seeds=(0, 1),
        rows=("bn", "owttt"),
        columns=("svhn", "cifar100@same"),
        corruptions=("snow", "fog"),
        stand_ins={"svhn": "npz:letters.npz"},
    )
    cells = selection.cells()
    assert list(cells) == [(row, column) for row in ("bn", "owttt") for column in ("svhn", "cifar100@same")]
    runs = cells["owttt", "svhn"]
    assert [(run.stream.corruptions, run.stream.seed) for run in runs] == [
        (("snow",), 0), (("fog",), 0), (("snow",), 1), (("fog",), 1),
    ]  # fmt: skip
    assert all(run.stream.unknown == ("npz:letters.npz",) and run.stream.num_samples == 200 for run in runs)
    assert cells["bn", "cifar100@same"][1].stream.unknown == ("cifar100@fog",)
    assert len(selection.specs()) == 16
    assert selection.published(("owttt", "svhn")) == (84.99, 87.94, 86.44)
    assert selection.heading("svhn") == "letters for svhn"
    assert selection.heading("cifar100@same") == "cifar100@same"
    with pytest.raises(ValueError, match=r"table1 has no 'tend'\. Did you mean tent"):
        Selection(find("table1"), rows=("tend",))
    with pytest.raises(ValueError, match="at least one seed"):
        Selection(find("table1"), seeds=())


def test_runs_that_cells_share_are_run_once():
    for name in paper():
        specs = Selection(find(name)).specs()
        assert len({json.dumps(spec.describe(), sort_keys=True) for spec in specs}) == len(specs)


def test_more_columns():
    selection = Selection(
        find("table1"), rows=("bn",), columns=("mnist", "textures"), extra={"textures": "npz:dtd.npz"}
    )
    assert [column for _, column in selection.cells()] == ["mnist", "textures"]
    assert {run.stream.unknown for run in selection.cells()["bn", "textures"]} == {("npz:dtd.npz",)}
    assert selection.published(("bn", "textures")) is None
    with pytest.raises(ValueError, match="table1 has a column 'mnist', whose published numbers are of other data"):
        Selection(find("table1"), extra={"mnist": "npz:dtd.npz"})
    assert selection.name() != Selection(find("table1"), rows=("bn",), columns=("mnist",)).name()


def test_cells_that_the_paper_does_not_have_are_not_run():
    selection = Selection(find("clean"))
    noise = "with noise, τ free as in Tab. 1"
    assert ("bn, no detector", noise) not in selection.cells()
    assert selection.metrics("no unknowns") == ("acc_s",)
    assert selection.metrics(noise) == ("acc_h",)
    assert {run.threshold for run in selection.cells()["bn, τ in [0.4, 1]", "no unknowns"]} == {(0.4, 1.0)}
    assert {run.threshold for run in selection.cells()["bn, τ in [0.4, 1]", noise]} == {"adaptive"}


def test_what_was_run_is_said_in_words():
    changes = {"model": "somewhere/mine", "batch_size": 8, "restrict": True}
    selection = Selection(
        find("table1"), num_samples=5, corruptions=("fog",), stand_ins={"cifar10": "npz:x/mine.npz"}, changes=changes
    )
    assert selection.about() == (
        "mine, mine for cifar10, 5 known samples per run, fog only (the paper: mean of 15), batches of 8, "
        "only the known set's classes, seed 0"
    )
    assert "(the paper: snow + contrast + glass_blur)" in Selection(find("mixed"), corruptions=("snow",)).about()


def test_a_stand_in_is_corrupted_as_the_other_would_be():
    selection = Selection(find("table1"), rows=("bn",), columns=("cifar100@same",), stand_ins={"cifar100": "npz:x.npz"})
    assert selection.cells()["bn", "cifar100@same"][0].stream.unknown == ("npz:x.npz@gaussian_noise",)
    assert selection.heading("cifar100@same") == "x for cifar100"


def test_rows_about_a_seed_have_just_that_one():
    selection = Selection(find("order"), seeds=(5, 6))
    assert {run.stream.seed for run in selection.cells()["order 3", "mnist"]} == {2}
    assert selection.about().endswith("seeds 0, 1, 2, 3")


def test_a_cell_is_the_mean_over_corruptions_and_its_deviation_is_over_seeds():
    def record(seed, value):
        return {"spec": {"stream": {"seed": seed}}, "metrics": {"acc_s": value, "acc_h": value / 2}}

    cell = summarize([record(0, 0.8), record(0, 0.6), record(1, 0.5), record(1, 0.5)], ("acc_s", "acc_h"))
    assert cell.mean == pytest.approx((60, 30))
    assert cell.deviation == pytest.approx((14.142, 7.071), abs=1e-3)
    assert cell.seeds == {0: pytest.approx((70, 35)), 1: pytest.approx((50, 25))}
    assert summarize([record(0, 0.8)], ("acc_s",)).deviation == (None,)
    nothing = summarize([record(0, 0.8), record(0, math.nan)], ("acc_s",))
    assert (nothing.mean, nothing.seeds) == ((None,), {0: (None,)})


def test_the_command(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path / "root"))
    monkeypatch.setenv("COLUMNS", "200")
    words = ["bench", "mixed", "--model", str(place / "model"), "--number", "20", "--results", str(tmp_path / "r")]
    for name in ("cifar10", "mnist", "svhn"):
        words += ["--stand-in", f"{name}=npz:{place / ('known.npz' if name == 'cifar10' else 'unknown.npz')}"]
    assert main([*words, "--methods", "test,bn", "--seeds", "0,1"]) == 0
    shown = capsys.readouterr().out
    assert "Tab. 8" in shown
    assert "63.9 88.2 74.1" in shown, "the published numbers"
    assert "stands in for svhn" in shown
    assert "unknown for svhn" in shown, "the column says so too"
    assert "±" in shown
    assert len(list((tmp_path / "r").glob("*.json"))) == 4
    assert main([*words, "--methods", "test,bn", "--seeds", "0,1"]) == 0
    assert capsys.readouterr().out == shown, "what is done is not redone"
    (table_path,) = (tmp_path / "r" / "tables").iterdir()
    table = json.loads(table_path.read_text())
    assert [cell["row"] for cell in table["cells"]] == ["test", "bn"]
    assert table["cells"][0]["published"] == [63.9, 88.2, 74.11]
    assert all((tmp_path / "r" / run["file"]).exists() for run in table["cells"][0]["runs"])
    assert {"file", "corruptions", "seed", "metrics"} == table["cells"][0]["runs"][0].keys()
    assert {"acc_s", "acc_h", "auroc", "acc_closed", "known_rejected"} <= table["cells"][0]["runs"][0]["metrics"].keys()

    assert main([*words[:-1], "svhn=npz:gone.npz", "--methods", "test"]) == 1
    failed = capsys.readouterr()
    assert "1 of 1 runs failed" in failed.err
    assert list((tmp_path / "r" / "tables").iterdir()) == [table_path], "a failure replaces nothing"
    assert "gone.npz: no such file" in failed.err
    assert "—" in failed.out


def test_the_list(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in paper())
    assert "svhn" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tabel1"], "No table or figure 'tabel1'. Did you mean table1"),
        (["table1", "--scale", "2"], "--scale is a share above 0 and up to 1"),
        (["table1", "--stand-in", "svhn"], "--stand-in takes NAME=DATA"),
        (["table1", "--corruptions", "sno"], "table1 has no 'sno'. Did you mean snow"),
    ],
)
def test_mistakes(words, message, capsys):
    assert main(["bench", *words]) == 1
    assert message in capsys.readouterr().err
