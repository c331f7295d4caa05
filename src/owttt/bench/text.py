"""Results as tables: on the terminal, in Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rich import box
from rich.markup import escape
from rich.table import Table as TerminalTable

from owttt.bench.compare import Gap, gaps, ranks
from owttt.bench.records import (
    COSTS,
    COSTS_TOLD,
    Cell,
    CellRecord,
    Number,
    RunRecord,
    TableRecord,
    cells_of,
    metric_name,
    row_mean,
)

CLOSE: Final = "≈"
"""Marks what is not further from the best than their difference varies over the seeds."""
_LEAST: Final = 6
"""Columns of a terminal that a number never has less than."""
_NARROW_CELL: Final = 8
"""Columns of a terminal that a cell takes beside its numbers."""


def methods_table(title: str, runs: Mapping[str, RunRecord]) -> TerminalTable:
    """Return a row per method on one stream, the best Acc_H in bold."""
    table = TerminalTable(
        title=escape(title),
        title_justify="left",
        caption="Percent. Acc_S: known samples given their class (a rejected one is wrong); Acc_N: unknown ones "
        "rejected; Acc_H: harmonic mean of the two; closed: accuracy on known samples, rejection ignored; rejected: "
        "known samples rejected; ms: time per sample.",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", overflow="fold", min_width=6)
    shown = ("acc_s", "acc_n", "acc_h", "acc_closed", "known_rejected", "auroc")
    for name in (*map(metric_name, shown), "τ", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    best = max((value for run in runs.values() if (value := run["metrics"]["acc_h"]) is not None), default=None)
    for name, run in runs.items():
        metrics = run["metrics"]
        samples = (metrics["n_known"] or 0) + (metrics["n_unknown"] or 0)
        milliseconds = 1000 * sum(run["seconds"]) / max(samples, 1)
        figures = (percent(metrics.get(key)) for key in shown)
        style = "bold" if len(runs) > 1 and best is not None and metrics["acc_h"] == best else None
        threshold = run["curves"]["threshold"][-1]
        last = "∞" if threshold is None else f"{threshold:.2f}"
        table.add_row(escape(name), *figures, last, f"{milliseconds:.2f}", style=style)
    return table


def percent(share: Number) -> str:
    """Return a share in percent; a dash where there is none."""
    return "—" if share is None or math.isnan(share) else f"{100 * share:.1f}"


def paper_table(table: TableRecord, width: int = 200) -> TerminalTable:
    """Return a table of the paper: ours, best of a column in bold, and below each number the published one.

    Where the terminal is too narrow for all metrics, cells show the last one, Acc_H in most tables.
    """
    narrow = _wide(table) > width
    place, gap, cells = ranks(table), gaps(table), cells_of(table)
    note = "; the terminal is too narrow for more than the last metric of a column" if narrow else ""
    made = TerminalTable(
        title=f"{escape(table['label'])}, {escape(table['title'])} (%)",
        caption=f"{escape(table['about'])}; below ours, dim: the paper's{_legend(table)}; {COSTS_TOLD}{note}",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    made.add_column("", overflow="fold", max_width=max(6, width // 5))
    for column in table["columns"]:
        metrics = table["metrics"][column][-1:] if narrow else table["metrics"][column]
        names = " ".join(map(metric_name, metrics))
        heading = f"{escape(table['headings'][column])}\n[dim]{escape(names)}[/]"
        made.add_column(heading, justify="right", no_wrap=not narrow, overflow="fold", min_width=_LEAST)
    for name in COSTS:
        made.add_column(metric_name(name), justify="right", no_wrap=True)
    for row in table["rows"]:
        keys = [(row, column) for column in table["columns"]]
        texts = [_terminal(cells.get(key), place.get(key), gap.get(key), last_only=narrow) for key in keys]
        made.add_row(escape(row), *texts, *_costs(table, row))
    return made


def _wide(table: TableRecord) -> int:
    """Return how many columns of a terminal the whole table takes, about."""
    longest = max((len(row) for row in table["rows"]), default=0)
    return longest + 20 + sum(_NARROW_CELL + 5 * len(table["metrics"][column]) for column in table["columns"])


def _terminal(cell: CellRecord | None, rank: int | None, gap: Gap | None, *, last_only: bool) -> str:
    if cell is None:
        return ""
    ours = ours_of(cell, gap, last_only=last_only)
    ours = f"[bold]{ours}[/]" if rank == 1 else ours
    published = cell["published"]
    return f"{ours}\n[dim]{numbers(published[-1:] if last_only else published)}[/]" if published else ours


def ours_of(cell: CellRecord, gap: Gap | None = None, *, last_only: bool = False) -> str:
    """Return the measured numbers of a cell, the deviation of the last, and whether it is close to the best."""
    if cell["mean"] is None:
        return "—"
    last = cell["deviation"][-1] if cell["deviation"] else None
    deviation = "" if last is None else f" ±{last:.1f}"
    means = cell["mean"][-1:] if last_only else cell["mean"]
    return f"{numbers(means)}{deviation}{f' {CLOSE}' if gap and not gap.exceeds else ''}"


def numbers(values: Sequence[Number]) -> str:
    """Return percentages in a row."""
    return " ".join("—" if value is None else f"{value:.1f}" for value in values)


def _costs(table: TableRecord, row: str) -> list[str]:
    """Return what the rows of every table end with."""
    return [numbers([row_mean(table, row, metric)]) for metric in COSTS]


def markdown(tables: Sequence[TableRecord]) -> str:
    """Return tables for a README: the best of a column in bold, the published numbers in brackets."""

    def text(cell: CellRecord, rank: int | None, gap: Gap | None) -> str:
        ours = f"**{ours_of(cell, gap)}**" if rank == 1 else ours_of(cell, gap)
        return f"{ours} ({numbers(cell['published'])})" if cell["published"] else ours

    parts = []
    for table in tables:
        heads = [_markdown(_heading(table, column)) for column in table["columns"]] + list(map(metric_name, COSTS))
        title = _markdown(f"{table['label']}, {table['title']}")
        parts += [f"**{title}** (%)", "", f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
        for row, cells in _rows(table, text):
            parts.append(f"| {' | '.join((_markdown(row), *cells, *_costs(table, row)))} |")
        about = f"{table['about']}; in brackets: the paper's{_legend(table)}; {COSTS_TOLD}."
        parts += ["", _markdown(about), ""]
    return "\n".join(parts)


def latex(tables: Sequence[TableRecord]) -> str:
    """Return a `tabular` per table, for a paper: the best of a column in bold, the published numbers in brackets."""

    def text(cell: CellRecord, rank: int | None, gap: Gap | None) -> str:
        ours = _latex(ours_of(cell, gap))
        ours = rf"\textbf{{{ours}}}" if rank == 1 else ours
        return f"{ours} ({_latex(numbers(cell['published']))})" if cell["published"] else ours

    parts = []
    for table in tables:
        heads = [_latex(_heading(table, column)) for column in table["columns"]] + list(map(metric_name, COSTS))
        about = f"{table['label']}, {table['title']}; {table['about']}; in brackets: the paper's{_legend(table)}"
        parts += [f"% {' '.join(about.split())}"]
        parts += [rf"\begin{{tabular}}{{l{'r' * len(heads)}}}", r"\toprule", rf" & {' & '.join(heads)} \\", r"\midrule"]
        for row, cells in _rows(table, text):
            parts.append(rf"{' & '.join((_latex(row), *cells, *map(_latex, _costs(table, row))))} \\")
        parts += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(parts)


def comma_separated(tables: Sequence[TableRecord]) -> str:
    """Return one line per number, with the table, what was run, row, column and its data; the published number last."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("table", "about", "row", "column", "data", "metric", "mean", "deviation", "seeds", "published"))
    for table in tables:
        for cell in table["cells"]:
            where = (table["name"], table["about"], cell["row"], cell["column"], table["headings"][cell["column"]])
            for place, metric in enumerate(table["metrics"][cell["column"]]):
                ours = (cell["mean"][place], (cell["deviation"] or ())[place]) if cell["mean"] else (None, None)
                figures = ("" if value is None else f"{value:.3f}" for value in ours)
                published = cell["published"][place] if cell["published"] else ""
                writer.writerow((*map(_plain_cell, where), metric, *figures, len(cell["seeds"]), published))
        for row in table["rows"]:
            where = (table["name"], table["about"], row, "(all)", "")
            for metric in COSTS:
                mean = row_mean(table, row, metric)
                text = "" if mean is None else f"{mean:.3f}"
                writer.writerow((*map(_plain_cell, where), metric, text, "", len(table["seeds"]), ""))
    return file.getvalue()


FORMATS: Final[dict[str, Callable[[Sequence[TableRecord]], str]]] = {
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
}


def _rows(table: TableRecord, text: Callable[[CellRecord, int | None, Gap | None], str]) -> list[tuple[str, list[str]]]:
    cells, place, gap = cells_of(table), ranks(table), gaps(table)

    def one(cell: Cell) -> str:
        return text(cells[cell], place.get(cell), gap.get(cell)) if cell in cells else ""

    return [(row, [one((row, column)) for column in table["columns"]]) for row in table["rows"]]


def _heading(table: TableRecord, column: str) -> str:
    names = " / ".join(map(metric_name, table["metrics"][column]))
    return f"{table['headings'][column]}: {names}"


def _legend(table: TableRecord) -> str:
    gap = gaps(table)
    seeds = min((one.seeds for one in gap.values()), default=0)
    return f"; {CLOSE}: not further from the best than their difference varies over {seeds} seeds" if gap else ""


def _plain_cell(text: str) -> str:
    """Return text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") else text


def _markdown(text: str) -> str:
    """Return text that Markdown shows as it is."""
    escaped = "".join(f"\\{letter}" if letter in r"\`*[]<>|" else letter for letter in text)
    return " ".join(escaped.split())


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    escaped = "".join(f"\\{letter}" if letter in "_%&#${}" else special.get(letter, letter) for letter in text)
    for sign, command in (("τ", r"$\tau$"), ("±", r"$\pm$"), ("≈", r"$\approx$"), ("—", "--"), ("Σ", r"$\Sigma$")):
        escaped = escaped.replace(sign, command)
    return " ".join(escaped.split())
