"""Results as tables: on the terminal, in Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from owttt.bench.campaign import Cell
from owttt.bench.compare import Gap, gaps, ranks
from owttt.bench.manifest import cells_of

METRIC_NAMES: Final = {"acc_s": "Acc_S", "acc_n": "Acc_N", "acc_h": "Acc_H"}
CLOSE: Final = "≈"
"""Marks what is not further from the best than their difference varies over the seeds."""

Record = Mapping[str, Any]


def methods_table(title: str, outcomes: Mapping[str, Record]) -> Table:
    """Return a row a method, the best Acc_H in bold."""
    table = Table(
        title=escape(title),
        caption="Acc_S: known samples given their class (a rejected one is wrong), Acc_N: unknown ones rejected, "
        "Acc_H: harmonic mean of the two (%)",
    )
    for name in ("method", "Acc_S", "Acc_N", "Acc_H", "AUROC", "τ", "ms a sample"):
        table.add_column(name, justify="left" if name == "method" else "right")
    best = max(outcome["metrics"]["acc_h"] for outcome in outcomes.values())
    for name, outcome in outcomes.items():
        metrics = outcome["metrics"]
        values = (metrics[key] for key in ("acc_s", "acc_n", "acc_h", "auroc"))
        figures = ("—" if math.isnan(value) else f"{100 * value:.2f}" for value in values)
        cost = 1000 * sum(outcome["seconds"]) / (metrics["n_known"] + metrics["n_unknown"])
        style = "bold" if len(outcomes) > 1 and metrics["acc_h"] == best else None
        table.add_row(name, *figures, f"{outcome['curves']['threshold'][-1]:.2f}", f"{cost:.2f}", style=style)
    return table


def grid_table(manifest: Record) -> Table:
    """Return a table of the paper: ours, best of a column in bold, and below each number the published one."""
    caption = f"{escape(manifest['about'])}; below ours, dim: the paper's"
    gap = gaps(manifest)
    if gap:
        caption += f"; {CLOSE}: not further from the best than their difference varies over the seeds"
    table = Table(title=f"{manifest['label']}, {escape(manifest['title'])} (%)", caption=caption)
    cells, place = cells_of(manifest), ranks(manifest)
    table.add_column("")
    for column in manifest["columns"]:
        names = " ".join(METRIC_NAMES[metric] for metric in manifest["metrics"][column])
        table.add_column(f"{escape(manifest['headings'][column])}\n[dim]{names}[/]", justify="right", no_wrap=True)
    for row in manifest["rows"]:
        keys = [(row, column) for column in manifest["columns"]]
        table.add_row(escape(row), *(_terminal(cells.get(key), place.get(key), gap.get(key)) for key in keys))
    return table


def _terminal(cell: Record | None, rank: int | None, gap: Gap | None) -> str:
    if cell is None:
        return ""
    ours = f"[bold]{ours_of(cell, gap)}[/]" if rank == 1 else ours_of(cell, gap)
    return f"{ours}\n[dim]{numbers(cell['published'])}[/]" if cell["published"] else ours


def ours_of(cell: Record, gap: Gap | None = None) -> str:
    """Return the measured numbers of a cell, the deviation of the last, and whether it is close to the best."""
    if cell["mean"] is None:
        return "—"
    deviation = f" ±{cell['deviation'][-1]:.1f}" if any(cell["deviation"]) else ""
    return f"{numbers(cell['mean'])}{deviation}{f' {CLOSE}' if gap and not gap.exceeds else ''}"


def numbers(values: Sequence[float]) -> str:
    """Return percentages in a row."""
    return " ".join(f"{value:.1f}" for value in values)


def markdown(manifest: Record) -> str:
    """Return a table for a README: the best of a column in bold, the published numbers in brackets."""

    def cell_text(cell: Record, rank: int | None) -> str:
        ours = f"**{ours_of(cell)}**" if rank == 1 else ours_of(cell)
        return f"{ours} ({numbers(cell['published'])})" if cell["published"] else ours

    heads = [f"{_heading(manifest, column)}" for column in manifest["columns"]]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    lines += [f"| {' | '.join((row, *texts))} |" for row, texts in _rows(manifest, cell_text)]
    about = f"{manifest['about']}; in brackets: the paper's"
    return "\n".join([f"**{manifest['label']}, {manifest['title']}** (%)", "", *lines, "", f"{about}.", ""])


def latex(manifest: Record) -> str:
    """Return a `tabular` for a paper: the best of a column in bold."""

    def cell_text(cell: Record, rank: int | None) -> str:
        ours = ours_of(cell).replace("±", r"$\pm$").replace("—", "--")
        return rf"\textbf{{{ours}}}" if rank == 1 else ours

    heads = [_latex(_heading(manifest, column)) for column in manifest["columns"]]
    lines = [rf"\begin{{tabular}}{{l{'r' * len(heads)}}}", r"\toprule", rf" & {' & '.join(heads)} \\", r"\midrule"]
    lines += [rf"{' & '.join((_latex(row), *texts))} \\" for row, texts in _rows(manifest, cell_text)]
    return "\n".join([f"% {manifest['label']}, {manifest['about']}", *lines, r"\bottomrule", r"\end{tabular}", ""])


def comma_separated(manifest: Record) -> str:
    """Return one line a number: table, row, column, metric, mean, deviation, seeds, published."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("table", "row", "column", "data", "metric", "mean", "deviation", "seeds", "published"))
    for cell in manifest["cells"]:
        for place, metric in enumerate(manifest["metrics"][cell["column"]]):
            ours = (cell["mean"][place], cell["deviation"][place]) if cell["mean"] else ()
            where = (manifest["name"], cell["row"], cell["column"], manifest["headings"][cell["column"]], metric)
            figures = [f"{value:.3f}" for value in ours] or ["", ""]
            published = cell["published"][place] if cell["published"] else ""
            writer.writerow((*where, *figures, len(cell["seeds"]), published))
    return file.getvalue()


FORMATS: Final[dict[str, Callable[[Record], str]]] = {"markdown": markdown, "csv": comma_separated, "latex": latex}


def _rows(manifest: Record, text: Callable[[Record, int | None], str]) -> list[tuple[str, list[str]]]:
    cells, place = cells_of(manifest), ranks(manifest)

    def one(cell: Cell) -> str:
        return text(cells[cell], place.get(cell)) if cell in cells else ""

    return [(row, [one((row, column)) for column in manifest["columns"]]) for row in manifest["rows"]]


def _heading(manifest: Record, column: str) -> str:
    names = " / ".join(METRIC_NAMES[metric] for metric in manifest["metrics"][column])
    return f"{manifest['headings'][column]}: {names}"


def _latex(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "_%&#" else letter for letter in text).replace("τ", r"$\tau$")
