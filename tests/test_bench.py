"""Tables of the paper as they are run: choices, stand-ins, means over corruptions and seeds, the command."""

import json
import math

import pytest

from owttt.bench.selection import Campaign, summarize
from owttt.bench.tables import find, paper
from owttt.cli import main
from tests.test_cli import place  # noqa: F401


def test_choices_and_stand_ins():
    campaign = Campaign(
        find("table1"),
        number=200,
        seeds=(0, 1),
        rows=("bn", "owttt"),
        columns=("svhn", "cifar100@same"),
        corruptions=("snow", "fog"),
        stand_ins={"svhn": "npz:letters.npz"},
    )
    cells = campaign.cells()
    assert list(cells) == [(row, column) for row in ("bn", "owttt") for column in ("svhn", "cifar100@same")]
    runs = cells["owttt", "svhn"]
    assert [(run.stream.corruptions, run.stream.seed) for run in runs] == [
        (("snow",), 0), (("fog",), 0), (("snow",), 1), (("fog",), 1),
    ]  # fmt: skip
    assert all(run.stream.unknown == ("npz:letters.npz",) and run.stream.number == 200 for run in runs)
    assert cells["bn", "cifar100@same"][1].stream.unknown == ("cifar100@fog",)
    assert len(campaign.specs()) == 16
    assert campaign.published(("owttt", "svhn")) == (84.99, 87.94, 86.44)
    assert campaign.heading("svhn") == "letters for svhn"
    assert campaign.heading("cifar100@same") == "cifar100@same"
    with pytest.raises(ValueError, match=r"table1 has no 'tend'\. Did you mean tent"):
        Campaign(find("table1"), rows=("tend",))
    with pytest.raises(ValueError, match="at least one seed"):
        Campaign(find("table1"), seeds=())


def test_runs_that_cells_share_are_run_once():
    for name in paper():
        specs = Campaign(find(name)).specs()
        assert len({json.dumps(spec.describe(), sort_keys=True) for spec in specs}) == len(specs)


def test_more_columns():
    campaign = Campaign(find("table1"), rows=("bn",), columns=("mnist", "textures"), extra={"textures": "npz:dtd.npz"})
    assert [column for _, column in campaign.cells()] == ["mnist", "textures"]
    assert {run.stream.unknown for run in campaign.cells()["bn", "textures"]} == {("npz:dtd.npz",)}
    assert campaign.published(("bn", "textures")) is None
    with pytest.raises(ValueError, match="table1 has a column 'mnist', whose published numbers are of other data"):
        Campaign(find("table1"), extra={"mnist": "npz:dtd.npz"})
    assert campaign.name() != Campaign(find("table1"), rows=("bn",), columns=("mnist",)).name()


def test_cells_that_the_paper_does_not_have_are_not_run():
    campaign = Campaign(find("clean"))
    noise = "with noise, τ free as in Tab. 1"
    assert ("bn, no detector", noise) not in campaign.cells()
    assert campaign.metrics("no unknowns") == ("acc_s",)
    assert campaign.metrics(noise) == ("acc_h",)
    assert {run.threshold for run in campaign.cells()["bn, τ in [0.4, 1]", "no unknowns"]} == {(0.4, 1.0)}
    assert {run.threshold for run in campaign.cells()["bn, τ in [0.4, 1]", noise]} == {"adaptive"}


def test_what_was_run_is_said_in_words():
    changes = {"model": "somewhere/mine", "batch_size": 8, "restrict": True}
    campaign = Campaign(
        find("table1"), number=5, corruptions=("fog",), stand_ins={"cifar10": "npz:x/mine.npz"}, changes=changes
    )
    assert campaign.about() == (
        "mine, mine for cifar10, 5 known samples a run, fog only (the paper: mean of 15), batches of 8, "
        "only the known set's classes, seed 0"
    )
    assert "(the paper: snow + contrast + glass_blur)" in Campaign(find("mixed"), corruptions=("snow",)).about()


def test_a_stand_in_is_corrupted_as_the_other_would_be():
    campaign = Campaign(find("table1"), rows=("bn",), columns=("cifar100@same",), stand_ins={"cifar100": "npz:x.npz"})
    assert campaign.cells()["bn", "cifar100@same"][0].stream.unknown == ("npz:x.npz@gaussian_noise",)
    assert campaign.heading("cifar100@same") == "x for cifar100"


def test_rows_about_a_seed_have_just_that_one():
    campaign = Campaign(find("order"), seeds=(5, 6))
    assert {run.stream.seed for run in campaign.cells()["order 3", "mnist"]} == {2}
    assert campaign.about().endswith("seeds 0, 1, 2, 3")


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


def test_the_command(place, tmp_path, capsys, monkeypatch):  # noqa: F811
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
    assert {"acc_s", "acc_n", "acc_h", "auroc", "corruptions", "seed"} <= table["cells"][0]["runs"][0].keys()

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
