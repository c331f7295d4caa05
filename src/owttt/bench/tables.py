"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table


def methods_table(title: str, outcomes: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a row a method, the best Acc_H in bold."""
    table = Table(
        title=escape(title), caption="Acc_S: known samples, Acc_N: unknown samples, Acc_H: harmonic mean of the two (%)"
    )
    for name in ("method", "Acc_S", "Acc_N", "Acc_H", "AUROC", "τ", "ms a sample"):
        table.add_column(name, justify="left" if name == "method" else "right")
    best = max(outcome["metrics"]["acc_h"] for outcome in outcomes.values())
    for name, outcome in outcomes.items():
        metrics = outcome["metrics"]
        figures = (f"{100 * metrics[key]:.2f}" for key in ("acc_s", "acc_n", "acc_h", "auroc"))
        cost = 1000 * sum(outcome["seconds"]) / (metrics["n_known"] + metrics["n_unknown"])
        style = "bold" if len(outcomes) > 1 and metrics["acc_h"] == best else None
        table.add_row(name, *figures, f"{outcome['curves']['threshold'][-1]:.2f}", f"{cost:.2f}", style=style)
    return table
