"""Results as tables: on the terminal, in Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rich.markup import escape
from rich.table import Table

from owttt.bench.compare import Gap, gaps, ranks
from owttt.bench.outcome import Record, cells_of
from owttt.bench.selection import Cell, Number

METRIC_NAMES: Final = {"acc_s": "Acc_S", "acc_n": "Acc_N", "acc_h": "Acc_H"}
CLOSE: Final = "≈"
"""Marks what is not further from the best than their difference varies over the seeds."""


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
    caption = f"{escape(manifest['about'])}; below ours, dim: the paper's{_legend(manifest)}"
    gap = gaps(manifest)
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
    last = cell["deviation"][-1]
    deviation = "" if last is None else f" ±{last:.1f}"
    return f"{numbers(cell['mean'])}{deviation}{f' {CLOSE}' if gap and not gap.exceeds else ''}"


def numbers(values: Sequence[Number]) -> str:
    """Return percentages in a row."""
    return " ".join("—" if value is None else f"{value:.1f}" for value in values)


def markdown(tables: Sequence[Record]) -> str:
    """Return tables for a README: the best of a column in bold, the published numbers in brackets."""

    def text(cell: Record, rank: int | None, gap: Gap | None) -> str:
        ours = f"**{ours_of(cell, gap)}**" if rank == 1 else ours_of(cell, gap)
        return f"{ours} ({numbers(cell['published'])})" if cell["published"] else ours

    parts = []
    for table in tables:
        heads = [_heading(table, column) for column in table["columns"]]
        parts += [f"**{table['label']}, {table['title']}** (%)", "", f"| | {' | '.join(heads)} |"]
        parts += [
            f"|---|{'---:|' * len(heads)}",
            *(f"| {' | '.join((row, *cells))} |" for row, cells in _rows(table, text)),
        ]
        parts += ["", f"{table['about']}; in brackets: the paper's{_legend(table)}.", ""]
    return "\n".join(parts)


def latex(tables: Sequence[Record]) -> str:
    """Return a `tabular` a table, for a paper: the best of a column in bold, the published numbers in brackets."""

    def text(cell: Record, rank: int | None, gap: Gap | None) -> str:
        ours = ours_of(cell, gap)
        ours = rf"\textbf{{{ours}}}" if rank == 1 else ours
        return _latex(f"{ours} ({numbers(cell['published'])})" if cell["published"] else ours)

    parts = []
    for table in tables:
        heads = [_latex(_heading(table, column)) for column in table["columns"]]
        parts += [f"% {table['label']}, {table['title']}; {table['about']}; in brackets: the paper's{_legend(table)}"]
        parts += [rf"\begin{{tabular}}{{l{'r' * len(heads)}}}", r"\toprule", rf" & {' & '.join(heads)} \\", r"\midrule"]
        parts += [rf"{' & '.join((_latex(row), *cells))} \\" for row, cells in _rows(table, text)]
        parts += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(parts)


def comma_separated(tables: Sequence[Record]) -> str:
    """Return one line a number, with the table, what was run, row, column and its data; the published number last."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("table", "about", "row", "column", "data", "metric", "mean", "deviation", "seeds", "published"))
    for table in tables:
        for cell in table["cells"]:
            where = (table["name"], table["about"], cell["row"], cell["column"], table["headings"][cell["column"]])
            for place, metric in enumerate(table["metrics"][cell["column"]]):
                ours = (cell["mean"][place], cell["deviation"][place]) if cell["mean"] else (None, None)
                figures = ("" if value is None else f"{value:.3f}" for value in ours)
                published = cell["published"][place] if cell["published"] else ""
                writer.writerow((*where, metric, *figures, len(cell["seeds"]), published))
    return file.getvalue()


FORMATS: Final[dict[str, Callable[[Sequence[Record]], str]]] = {
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
}


def _rows(table: Record, text: Callable[[Record, int | None, Gap | None], str]) -> list[tuple[str, list[str]]]:
    cells, place, gap = cells_of(table), ranks(table), gaps(table)

    def one(cell: Cell) -> str:
        return text(cells[cell], place.get(cell), gap.get(cell)) if cell in cells else ""

    return [(row, [one((row, column)) for column in table["columns"]]) for row in table["rows"]]


def _heading(table: Record, column: str) -> str:
    names = " / ".join(METRIC_NAMES[metric] for metric in table["metrics"][column])
    return f"{table['headings'][column]}: {names}"


def _legend(table: Record) -> str:
    gap = gaps(table)
    seeds = min((one.seeds for one in gap.values()), default=0)
    return f"; {CLOSE}: not further from the best than their difference varies over {seeds} seeds" if gap else ""


def _latex(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in "_%&#" else letter for letter in text)
    for sign, command in (("τ", r"$\tau$"), ("±", r"$\pm$"), ("≈", r"$\approx$"), ("—", "--")):
        escaped = escaped.replace(sign, command)
    return escaped
