"""A section of the page: a table with its figure, gaps, heat maps, curves and configuration."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from owttt.bench.compare import Gap, below, gaps, ranks
from owttt.bench.outcome import Record, cells_of
from owttt.bench.selection import short
from owttt.bench.text import CLOSE, METRIC_NAMES, numbers, ours_of

BASELINE: Final = "test"
"""The row that others should not fall behind."""
SHOWN: Final = "snow"
"""The corruption whose scores the page keeps, where a table has several: those of all are megabytes."""


def section(number: int, name: str, manifest: Record, runs: Sequence[Record], figures: Path) -> str:
    """Return the section of a table or figure; `number` is its place in the page's data."""
    notes = [f"{short(data)} stands in for {name}" for name, data in manifest["stand_ins"].items()]
    notes += [f"failed: {reason}" for reason in manifest["failed"]]
    return "\n".join(
        (
            f'<h2 id="{html.escape(name)}">{html.escape(manifest["label"])}: {html.escape(manifest["title"])}</h2>',
            f"<p>{html.escape(plain(manifest['about']))}.</p>",
            f"<ul>{''.join(f'<li>{html.escape(plain(note))}</li>' for note in notes)}</ul>" if notes else "",
            _figure(manifest, figures / name),
            _table(manifest),
            _gaps(manifest),
            _heat_maps(manifest),
            _viewer(number, name) if runs and not manifest["draw"] else "",
            _configuration(runs),
        )
    )


def look_of(run: Record) -> str:
    """Return what a run's known samples look like."""
    return " + ".join(run["spec"]["stream"]["corruptions"]) or "clean"


def plain(text: str) -> str:
    """Return a text without the folders of the machine it was written on: of a path the last part."""
    return re.sub(r"""(?:\b[A-Za-z]:)?[\\/](?:[^\\/\s"':;,]+[\\/])+""", "", text)


def _metric(name: str) -> str:
    head, _, letter = METRIC_NAMES[name].partition("_")
    return f"{head}<sub>{letter}</sub>"


def _figure(manifest: Record, path: Path) -> str:
    """Return a figure's picture, as SVG or PNG, whichever is smaller."""
    kinds = {"svg": "image/svg+xml", "png": "image/png"}
    drawn = {kind: file.read_bytes() for kind in kinds if (file := path.with_suffix(f".{kind}")).exists()}
    if not manifest["draw"] or not drawn:
        return ""
    kind = min(drawn, key=lambda kind: len(drawn[kind]))
    source = f"data:{kinds[kind]};base64,{base64.b64encode(drawn[kind]).decode()}"
    return f'<figure class=paper><img alt="{html.escape(manifest["title"])}" src="{source}"></figure>'


def _table(manifest: Record) -> str:
    """Return the table, the best of a column bold, the second underlined."""
    cells, place, gap = cells_of(manifest), ranks(manifest), gaps(manifest)
    lost = below(manifest, BASELINE)
    caption = "Best of a column <b>bold</b>, second <u>underlined</u>; small: published."
    if lost:
        caption += f" <span class=below>Red</span>: behind <i>{BASELINE}</i>, which does not adapt."
    if gap:
        caption += (
            f" ± deviation of the last over seeds; {CLOSE} not further from the best than their difference varies."
        )
    head = "".join(
        f"<th>{html.escape(manifest['headings'][column])}<small>"
        f"{' '.join(_metric(metric) for metric in manifest['metrics'][column])}</small></th>"
        for column in manifest["columns"]
    )
    rows = []
    for row in manifest["rows"]:
        keys = [(row, column) for column in manifest["columns"]]
        texts = (_cell(cells.get(key), place.get(key), gap.get(key), key in lost) for key in keys)
        rows.append(f"<tr><td>{html.escape(row)}</td>{''.join(texts)}</tr>")
    return (
        f"<div class=scroll><table><caption>{caption}</caption>"
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(cell: Record | None, rank: int | None, gap: Gap | None, lost: bool) -> str:
    if cell is None:
        return "<td></td>"
    published = f"<small>{numbers(cell['published'])}</small>" if cell["published"] else ""
    marks = (("best", rank == 1), ("second", rank == 2), ("below", lost))
    style = " ".join(name for name, there in marks if there)
    return f'<td><span class="{style}">{ours_of(cell, gap)}</span>{published}</td>'


def _gaps(manifest: Record) -> str:
    """Return how far every cell is behind the best, and whether that exceeds its deviation."""
    gap, place = gaps(manifest), ranks(manifest)
    if not gap:
        return ""
    seeds = ", ".join(sorted({str(one.seeds) for one in gap.values()}))
    head = "".join(f"<th>{html.escape(manifest['headings'][column])}</th>" for column in manifest["columns"])
    rows = []
    for row in manifest["rows"]:
        keys = [(row, column) for column in manifest["columns"]]
        texts = (_gap(gap.get(key), best=place.get(key) == 1) for key in keys)
        rows.append(f"<tr><td>{html.escape(row)}</td>{''.join(texts)}</tr>")
    return (
        "<details><summary>Which differences exceed their deviation</summary><div class=scroll><table><caption>Behind "
        f"the best of the column, seed by seed ({seeds} seeds): mean ± deviation. Bold exceeds it, which of two equal "
        "methods does in 39 % of the cases with two seeds, 22 % with three, 1 % with ten.</caption>"
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _gap(gap: Gap | None, *, best: bool) -> str:
    if gap is None:
        return f"<td>{'best' if best else ''}</td>"
    text = f"{gap.behind:.1f} ±{gap.deviation:.1f}"
    return f"<td>{f'<b>{text}</b>' if gap.exceeds else text}</td>"


def _heat_maps(manifest: Record) -> str:
    """Return, for every column, its last metric by row and corruption; nothing where there is one corruption only."""
    maps = []
    for column in manifest["columns"]:
        metric = manifest["metrics"][column][-1]
        values: dict[tuple[str, str], list[float]] = {}
        for cell in manifest["cells"]:
            for run in cell["runs"]:
                if cell["column"] == column and len(run["corruptions"]) == 1 and run.get(metric) is not None:
                    values.setdefault((cell["row"], run["corruptions"][0]), []).append(100 * run[metric])
        looks = list(dict.fromkeys(look for _, look in values))
        if len(looks) > 1:
            title = f"{html.escape(manifest['headings'][column])}: {_metric(metric)}"
            maps.append(_heat_map(title, manifest["rows"], looks, values))
    return f"<details><summary>By corruption</summary>{''.join(maps)}</details>" if maps else ""


def _heat_map(
    title: str, rows: Sequence[str], looks: Sequence[str], values: Mapping[tuple[str, str], Sequence[float]]
) -> str:
    head = "".join(f"<th>{html.escape(look.replace('_', ' '))}</th>" for look in looks)
    lines = []
    for row in rows:
        cells = (_heat(values.get((row, look))) for look in looks)
        lines.append(f"<tr><td>{html.escape(row)}</td>{''.join(cells)}</tr>")
    return (
        f"<h3>{title}</h3><div class=scroll><table class=heat><thead><tr><th></th>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _heat(values: Sequence[float] | None) -> str:
    if not values:
        return "<td></td>"
    mean = sum(values) / len(values)
    return f'<td style="background:hsl({1.2 * mean:.0f} 60% 50% / .35)">{mean:.1f}</td>'


def _viewer(number: int, name: str) -> str:
    return f"""<section data-table="{number}"><h3>As the stream goes by</h3>
<p><label>against <select name=column></select></label><label>under <select name=look></select></label></p>
<div class=pair>
<figure><div class=curves></div><figcaption>Cumulative Acc<sub>H</sub> (%)</figcaption></figure>
<figure><div class=scores></div>
<p><label>scores of <select name=row></select></label> <output></output><br>
<input type=range min=0 max=1 value=0 aria-label="batch of {html.escape(name)}"></p>
<figcaption>Scores of three batches up to the chosen one: <span style="color:var(--known)">known</span>,
<span style="color:var(--unknown)">unknown</span>; right of τ is rejected</figcaption></figure>
</div></section>"""


def _configuration(runs: Sequence[Record]) -> str:
    if not runs:
        return ""
    kept = {key: runs[-1][key] for key in ("spec", "adapter", "data", "environment", "fingerprints")}
    text = plain(json.dumps(kept, indent=1, ensure_ascii=False))
    return (
        f"<details><summary>Configuration of one of the {len(runs)} runs</summary>"
        f"<pre>{html.escape(text)}</pre></details>"
    )
