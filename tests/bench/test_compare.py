"""Which differences exceed their deviation, and tables as text."""

import csv
import io

import pytest
from rich.console import Console

from owttt.bench.compare import below, gaps, ranks
from owttt.bench.records import METRIC_NAMES
from owttt.bench.text import FORMATS, ours_of, paper_table


def cell(row, seeds, column="mnist", published=None):
    means = list(seeds.values())
    columns = list(zip(*means, strict=True))
    mean = [None if None in values else sum(values) / len(values) for values in columns] or None
    return {
        "row": row,
        "column": column,
        "published": published,
        "mean": mean,
        "deviation": [1.0 if len(means) > 1 and value is not None else None for value in mean or ()],
        "seeds": seeds,
        "runs": [],
    }


def table(*cells):
    columns = list(dict.fromkeys(one["column"] for one in cells))
    return {
        "name": "table1",
        "label": "Tab. 1",
        "title": "CIFAR-10-C",
        "about": "a model, 20 known samples per run",
        "rows": list(dict.fromkeys(one["row"] for one in cells)),
        "columns": columns,
        "headings": {column: f"the {column}_set" for column in columns},
        "metrics": {column: ["acc_s", "acc_h"] for column in columns},
        "cells": list(cells),
        "seeds": [0, 1],
    }


def test_differences_are_taken_seed_by_seed():
    """Both vary by ten points from seed to seed; their difference hardly does."""
    found = gaps(
        table(
            cell("best", {"0": (0, 50), "1": (0, 60), "2": (0, 70)}),
            cell("behind", {"0": (0, 48), "1": (0, 57.5), "2": (0, 68.5)}),
            cell("close", {"0": (0, 55), "1": (0, 58), "2": (0, 66)}),
            cell("alone", {"0": (0, 10)}),
            cell("failed", {}),
        )
    )
    assert set(found) == {("behind", "mnist"), ("close", "mnist")}
    assert found["behind", "mnist"].behind == pytest.approx(2)
    assert found["behind", "mnist"].deviation == pytest.approx(0.5)
    assert found["behind", "mnist"].exceeds
    assert found["behind", "mnist"].seeds == 3
    assert found["close", "mnist"].behind == pytest.approx(1 / 3)
    assert not found["close", "mnist"].exceeds
    assert ours_of(cell("close", {"0": (0, 1), "1": (0, 3)}), found["close", "mnist"]) == "0.0 2.0 ±1.0 ≈"


def test_ranks_are_by_the_last_metric_within_a_column():
    cells = [cell("a", {"0": (9, 1)}), cell("b", {"0": (1, 9)}), cell("c", {"0": (5, 9)}), cell("d", {})]
    assert ranks(table(*cells, cell("a", {"0": (0, 0)}, "noise"))) == {
        ("a", "mnist"): 2,
        ("b", "mnist"): 1,
        ("c", "mnist"): 1,
        ("a", "noise"): 1,
    }


def test_cells_behind_a_row():
    cells = [cell("test", {"0": (9, 5)}), cell("b", {"0": (9, 4)}), cell("c", {"0": (1, 6)}), cell("d", {})]
    assert below(table(*cells, cell("b", {"0": (0, 0)}, "noise")), "test") == {("b", "mnist")}


def test_formats():
    content = table(
        cell("a", {"0": (60, 70), "1": (62, 72)}, published=[1.5, 2.5]),
        cell("b", {"0": (10, 20), "1": (10, 22)}),
        cell("a", {}, "noise"),
    )
    markdown = FORMATS["markdown"]([content])
    assert "| a | **61.0 71.0 ±1.0** (1.5 2.5) | — | — | — |" in markdown
    assert "| b | 10.0 21.0 ±1.0 |  | — | — |" in markdown, "a cell that does not exist is empty"
    latex = FORMATS["latex"]([content])
    assert r"a & \textbf{61.0 71.0 $\pm$1.0} (1.5 2.5) & -- & -- & -- \\" in latex
    assert r"the mnist\_set: Acc\_S / Acc\_H" in latex
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"]([content, content]))))
    assert len(rows) == 20, "one header, whatever the number of tables"
    assert [(r["row"], r["metric"], r["mean"], r["published"]) for r in rows[:3]] == [
        ("a", "acc_s", "61.000", "1.5"),
        ("a", "acc_h", "71.000", "2.5"),
        ("b", "acc_s", "10.000", ""),
    ]
    assert rows[-1]["mean"] == ""


def test_a_number_that_cannot_be_measured_is_none_and_ranks_nowhere():
    content = table(cell("a", {"0": (60, None), "1": (62, None)}), cell("b", {"0": (10, 20), "1": (10, 22)}))
    assert ranks(content) == {("b", "mnist"): 1}
    assert gaps(content) == {}
    assert "| a | 61.0 — |" in FORMATS["markdown"]([content])
    assert FORMATS["csv"]([content]).count(",,") > 0


def shown(content, width):
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(paper_table(content, width))
    return console.file.getvalue()


def with_runs(one, **metrics):
    return {**one, "runs": [{"file": "f", "corruptions": ["fog"], "seed": 0, "metrics": metrics}]}


def test_every_table_ends_with_what_rejection_costs():
    content = table(
        with_runs(cell("a", {"0": (60, 70)}), acc_closed=0.9, known_rejected=0.2),
        with_runs(cell("a", {"0": (60, 70)}, "noise"), acc_closed=0.8, known_rejected=0.1),
        cell("b", {"0": (10, 20)}),
    )
    assert "| a | **60.0 70.0** | **60.0 70.0** | 85.0 | 15.0 |" in FORMATS["markdown"]([content])
    assert "| b | 10.0 20.0 |  | — | — |" in FORMATS["markdown"]([content]), "a first result did not keep them"
    assert r"& 85.0 & 15.0 \\" in FORMATS["latex"]([content])
    assert ",a,(all),,known_rejected,15.000,," in FORMATS["csv"]([content])
    assert "85.0" in shown(content, 120)


def test_any_metric_can_be_shown():
    content = table(cell("a", {"0": tuple(range(len(METRIC_NAMES)))}))
    content["metrics"] = {"mnist": list(METRIC_NAMES)}
    text = FORMATS["markdown"]([content])
    assert all(name in text for name in METRIC_NAMES.values())
    content["metrics"] = {"mnist": ["made_up"]}
    assert "made_up" in FORMATS["markdown"]([content]), "one of another package is called what it is"


def test_a_narrow_terminal_keeps_method_and_harmonic_mean():
    columns = ("noise", "mnist", "svhn", "tiny-imagenet", "cifar100@same")
    content = table(*(cell("owttt", {"0": (61.5, 72.5)}, column, [1.5, 2.5]) for column in columns))
    content["headings"] = {column: column for column in columns}
    content["metrics"] = {column: ["acc_s", "acc_h"] for column in columns}
    narrow = shown(content, 80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    assert narrow.count("72.5") == 5
    assert "61.5" not in narrow
    assert "owttt" in narrow
    assert "too narrow for more than the last metric" in " ".join(narrow.split())
    assert shown(content, 160).count("61.5 72.5") == 5
    long = "a_rather_long_package.module:PseudoLabel"
    content["headings"] = {column: f"{column}_test_of_ten_thousand for {column}" for column in columns}
    content["rows"] = [long]
    content["cells"] = [{**one, "row": long} for one in content["cells"]]
    folded = shown(content, 80)
    assert "…" not in folded
    assert folded.count("72.5") == 5, "names fold, numbers stay"


def test_what_others_named_is_text():
    content = table(cell("=cmd|' /C calc'!A0", {"0": (60, 70)}), cell("a | b `c` <b>", {"0": (1, 2)}))
    content["about"] = "x\n\\end{document} $5 {y} ^ ~"
    assert "'=cmd|" in FORMATS["csv"]([content])
    assert r"a \| b \`c\` \<b\>" in FORMATS["markdown"]([content])
    latex = FORMATS["latex"]([content])
    assert r"=cmd|' /C calc'!A0" in latex
    assert "\n\\end{document}" not in latex, "a comment stays a comment"
