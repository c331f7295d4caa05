"""The page of a results folder: tables, heat maps, curves, scores to scrub through, configuration."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from owttt.bench.colours import COLOURS
from owttt.bench.tables import numbers

METRIC_NAMES: Final = {"acc_s": "Acc<sub>S</sub>", "acc_n": "Acc<sub>N</sub>", "acc_h": "Acc<sub>H</sub>"}
SCORES_OF: Final = "snow"
"""The corruption whose score histograms the page keeps, where a table has several: all of them are megabytes."""

Record = Mapping[str, Any]


def render(folder: Path, title: str) -> str:
    """Return the page of a results folder: of every table in `tables` and the runs they are made of."""
    manifests = [_read(path) for path in sorted((folder / "tables").glob("*.json"))]
    if not manifests:
        raise FileNotFoundError(
            f"{folder / 'tables'}: no table there; `owttt bench NAME --results {folder}` makes one."
        )
    tables = [(manifest, _runs(manifest, folder)) for manifest in manifests]
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class=muted>{html.escape(_about(manifests))}</p>",
        "<nav>" + "".join(f'<a href="#{m["name"]}">{html.escape(m["title"])}</a>' for m in manifests) + "</nav>",
        *(_section(number, manifest, runs) for number, (manifest, runs) in enumerate(tables)),
    ]
    payload = {"colours": COLOURS, "tables": [{"runs": [_small(run) for run in runs]} for _, runs in tables]}
    return _document(title, "\n".join(parts), payload)


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _runs(manifest: Record, folder: Path) -> list[dict[str, Any]]:
    """Return the records of a table with the row and column they belong to; those that are missing are left out."""
    runs = []
    for cell in manifest["cells"]:
        for name in cell["runs"]:
            path = folder / name
            if path.exists():
                runs.append({**_read(path), "row": cell["row"], "column": cell["column"]})
    return runs


def _small(run: Record) -> dict[str, Any]:
    """Return what of a record the page's pictures need."""
    corruptions = run["spec"]["stream"]["corruptions"]
    small = {
        "row": run["row"],
        "column": run["column"],
        "method": run["spec"]["method"],
        "look": _look(run),
        "curve": _rounded(run["curves"]["acc_h"], 4),
        "threshold": _rounded(run["curves"]["threshold"], 3),
    }
    return small | ({"scores": run["scores"]} if len(corruptions) != 1 or corruptions == [SCORES_OF] else {})


def _look(run: Record) -> str:
    """Return what tells a run from the others of its cell: corruptions and seed."""
    stream = run["spec"]["stream"]
    return f"{' + '.join(stream['corruptions']) or 'clean'}, seed {stream['seed']}"


def _rounded(values: Iterable[float | None], digits: int) -> list[float | None]:
    return [None if value is None else round(value, digits) for value in values]


def _about(manifests: Sequence[Record]) -> str:
    environment = manifests[0]["environment"]
    return (
        f"owttt {environment['owttt']}, torch {environment['torch']}, numpy {environment['numpy']}, Python "
        f"{environment['python']}. Numbers are percent. Below each of ours, small: the paper's (Li et al., ICCV 2023), "
        "from its own models and data."
    )


def _section(number: int, manifest: Record, runs: Sequence[Record]) -> str:
    size = "all" if manifest["number"] is None else f"{manifest['number']:,}"
    stand_ins = "".join(
        f"<li>{html.escape(_plain(data))} stands in for {html.escape(name)}</li>"
        for name, data in manifest["stand_ins"].items()
    )
    failed = "".join(f"<li>failed: {html.escape(reason)}</li>" for reason in manifest["failed"])
    part = "" if manifest["all_corruptions"] else f", {', '.join(manifest['corruptions'])} only"
    return f"""<h2 id="{manifest["name"]}">{html.escape(manifest["label"])}: {html.escape(manifest["title"])}</h2>
<p>{html.escape(Path(manifest["model"]).name)}, {size} known samples a run{html.escape(part)}, seeds
{", ".join(map(str, manifest["seeds"]))}.</p><ul>{stand_ins}{failed}</ul>
{_table(manifest)}
{_heat_maps(manifest, runs)}
{_viewer(number, manifest)}
{_configuration(runs)}"""


def _table(manifest: Record) -> str:
    """Return the table, the best of a column bold, the second underlined."""
    cells = {(cell["row"], cell["column"]): cell for cell in manifest["cells"]}
    head = "".join(f"<th>{html.escape(column)}</th>" for column in manifest["columns"])
    metrics = " / ".join(METRIC_NAMES[metric] for metric in manifest["metrics"])
    rows = []
    for row in manifest["rows"]:
        columns = (_cell(cells[row, column], _rank(cells, row, column)) for column in manifest["columns"])
        rows.append(f"<tr><td>{html.escape(row)}</td>{''.join(columns)}</tr>")
    return (
        f"<div class=scroll><table><caption>{metrics}, ± deviation over the seeds of the last</caption>"
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _rank(cells: Mapping[tuple[str, str], Record], row: str, column: str) -> int:
    """Return the place of a cell in its column by its last metric, 1 for the best, 0 if it has no numbers."""
    if cells[row, column]["mean"] is None:
        return 0
    rivals = sorted({c["mean"][-1] for (_, name), c in cells.items() if name == column and c["mean"]}, reverse=True)
    return 1 + rivals.index(cells[row, column]["mean"][-1])


def _cell(cell: Record, rank: int) -> str:
    published = f"<small>{numbers(cell['published'])}</small>" if cell["published"] else ""
    if cell["mean"] is None:
        return f"<td>—{published}</td>"
    deviation = f" ±{cell['deviation'][-1]:.1f}" if any(cell["deviation"]) else ""
    style = {1: " class=best", 2: " class=second"}.get(rank, "")
    return f"<td><span{style}>{numbers(cell['mean'])}{deviation}</span>{published}</td>"


def _heat_maps(manifest: Record, runs: Sequence[Record]) -> str:
    """Return, for every column, Acc_H by row and corruption; nothing where there is one corruption only."""
    maps = []
    for column in manifest["columns"]:
        values: dict[tuple[str, str], list[float]] = {}
        for run in runs:
            corruptions = run["spec"]["stream"]["corruptions"]
            if run["column"] == column and len(corruptions) == 1:
                score = run["metrics"]["acc_h"] if run["metrics"]["acc_h"] is not None else run["metrics"]["acc_s"]
                values.setdefault((run["row"], corruptions[0]), []).append(100 * score)
        looks = list(dict.fromkeys(look for _, look in values))
        if len(looks) > 1:
            maps.append(_heat_map(column, manifest["rows"], looks, values))
    if not maps:
        return ""
    return f"<details><summary>By corruption</summary>{''.join(maps)}</details>"


def _heat_map(
    column: str, rows: Sequence[str], looks: Sequence[str], values: Mapping[tuple[str, str], Sequence[float]]
) -> str:
    head = "".join(f"<th>{html.escape(look.replace('_', ' '))}</th>" for look in looks)
    lines = []
    for row in rows:
        cells = (_heat(values.get((row, look))) for look in looks)
        lines.append(f"<tr><td>{html.escape(row)}</td>{''.join(cells)}</tr>")
    return (
        f"<h3>{html.escape(column)}</h3><div class=scroll><table class=heat><thead><tr><th></th>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _heat(values: Sequence[float] | None) -> str:
    if not values:
        return "<td>—</td>"
    mean = sum(values) / len(values)
    hue = 1.2 * mean
    return f'<td style="background:hsl({hue:.0f} 60% 50% / .35)">{mean:.1f}</td>'


def _viewer(number: int, manifest: Record) -> str:
    return f"""<section data-table="{number}"><h3>As the stream goes by</h3>
<p><label>against <select name=column></select></label><label>under <select name=look></select></label></p>
<figure><div class=curves></div><figcaption>Cumulative Acc<sub>H</sub> (%)</figcaption></figure>
<p><label>scores of <select name=row></select></label>
<input type=range min=0 max=1 value=0 aria-label="batch of {html.escape(manifest["name"])}"> <output></output></p>
<figure><div class=scores></div><figcaption>Scores of three batches up to the chosen one:
<span style="color:var(--known)">known</span>, <span style="color:var(--unknown)">unknown</span>; right of τ is
rejected</figcaption></figure></section>"""


def _configuration(runs: Sequence[Record]) -> str:
    if not runs:
        return ""
    one = runs[-1]
    text = json.dumps(
        {key: one[key] for key in ("spec", "adapter", "data", "environment")}, indent=1, ensure_ascii=False
    )
    return (
        f"<details><summary>Configuration of one of the {len(runs)} runs</summary>"
        f"<pre>{html.escape(_plain(text))}</pre></details>"
    )


def _plain(text: str) -> str:
    """Return a text without the folders of the machine it was written on."""
    words = [word.rpartition("/")[2] if word.count("/") > 1 else word for word in text.split('"')]
    return '"'.join(words) if '"' in text else f"{text.partition(':')[0]}:{Path(text.partition(':')[2]).name}"


def _document(title: str, body: str, payload: Mapping[str, Any]) -> str:
    here = Path(__file__).parent
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    data = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{style}</style></head>
<body>
{body}
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body></html>
"""
