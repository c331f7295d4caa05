"""Results as tables on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from owttt.bench.campaign import Campaign, Cell, Summary

METRIC_NAMES: Final = {"acc_s": "Acc_S", "acc_n": "Acc_N", "acc_h": "Acc_H"}


def methods_table(title: str, outcomes: Mapping[str, Mapping[str, Any]]) -> Table:
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


def grid_table(campaign: Campaign, summaries: Mapping[Cell, Summary]) -> Table:
    """Return a table of the paper: ours, best of a column in bold, and below each number the published one."""
    grid = campaign.grid
    names = " / ".join(METRIC_NAMES[metric] for metric in grid.metrics)
    caption = f"{escape(campaign.about())}; below ours, dim: the paper's"
    table = Table(title=f"{grid.label}, {escape(grid.title)}: {names} (%)", caption=caption)
    cells = campaign.cells()
    columns = list(dict.fromkeys(column for _, column in cells))
    table.add_column("")
    for column in columns:
        table.add_column(escape(column), justify="right", no_wrap=True)
    for row in dict.fromkeys(row for row, _ in cells):
        table.add_row(escape(row), *(_cell(campaign, summaries, (row, column)) for column in columns))
    return table


def _cell(campaign: Campaign, summaries: Mapping[Cell, Summary], cell: Cell) -> str:
    published = campaign.published(cell)
    below = f"[dim]{numbers(published)}[/]" if published else ""
    if cell not in summaries:
        return f"—\n{below}"
    ours = summaries[cell]
    rivals = [summary.mean[-1] for (_, column), summary in summaries.items() if column == cell[1]]
    text = numbers(ours.mean)
    if any(ours.deviation):
        text += f" ±{ours.deviation[-1]:.1f}"
    return f"{f'[bold]{text}[/]' if ours.mean[-1] == max(rivals) else text}\n{below}"


def numbers(values: Sequence[float]) -> str:
    """Return percentages in a row."""
    return " ".join(f"{value:.1f}" for value in values)
