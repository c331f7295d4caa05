"""The page of a results folder: a section a table or figure, a gallery, and what makes it one file."""

from __future__ import annotations

import html
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from owttt.bench.colors import COLORS
from owttt.bench.outcome import Record, manifests, records
from owttt.bench.report.gallery import gallery
from owttt.bench.report.looks import looks
from owttt.bench.report.sections import SHOWN, look_of, section

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""What the page may load: only what it holds."""
LOOKS_LINK: Final = '<a href="#looks">Corruptions</a>'
GALLERY_LINK: Final = '<a href="#gallery">Gallery</a>'


def render(folder: Path, title: str, pictures_of: Collection[str] = ()) -> str:
    """Return the page of a results folder: of every table in `tables` and the runs they are made of.

    `pictures_of` names the data sets whose pictures a gallery may show; streams of others have none.
    """
    tables = [(name, manifest, records(manifest, folder)) for name, manifest in manifests(folder)]
    links = "".join(
        f'<a href="#{html.escape(name)}" title="{html.escape(manifest["title"])}">{html.escape(manifest["label"])}</a>'
        for name, manifest, _ in tables
    )
    everything = [run for _, _, runs in tables for run in runs]
    shown, seen = gallery(everything, pictures_of), looks(everything)
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class=muted>{html.escape(_about(manifest for _, manifest, _ in tables))}</p>",
        f"<nav>{links}{LOOKS_LINK if seen else ''}{GALLERY_LINK if shown else ''}</nav>",
        *(
            section(number, name, manifest, runs, folder / "figures")
            for number, (name, manifest, runs) in enumerate(tables)
        ),
        seen,
        shown,
    ]
    viewed = [[] if manifest["draw"] else runs for _, manifest, runs in tables]
    payload = {"colors": COLORS, "tables": [{"runs": _small(runs)} for runs in viewed]}
    return _document(title, "\n".join(body), payload)


def _small(runs: Sequence[Record]) -> list[dict[str, Any]]:
    """Return what of a table's records the page's pictures need: of the scores those under one corruption."""
    looks = list(dict.fromkeys(map(look_of, runs)))
    shown = SHOWN if SHOWN in looks else next(iter(looks), "")
    return [
        {
            "row": run["row"],
            "column": run["column"],
            "method": run["spec"]["method"],
            "look": f"{look_of(run)}, seed {run['spec']['stream']['seed']}",
            "curve": _rounded(run["curves"]["acc_h"], 4),
            "threshold": _rounded(run["curves"]["threshold"], 3),
            **({"scores": run["scores"]} if look_of(run) == shown else {}),
        }
        for run in runs
    ]


def _rounded(values: Iterable[float | None], digits: int) -> list[float | None]:
    return [None if value is None else round(value, digits) for value in values]


def _about(manifests: Iterable[Record]) -> str:
    versions = {
        f"owttt {e['owttt']}, torch {e['torch']}, numpy {e['numpy']}, Python {e['python']}, {e['machine']}"
        for manifest in manifests
        if (e := manifest["environment"])
    }
    return (
        f"{'; '.join(sorted(versions))}. Numbers are percent. Below each of ours, small: the paper's (Li et al., ICCV "
        "2023), from its own models and data. Acc_S: known samples given their class (a rejected one is wrong); Acc_N: "
        "unknown ones rejected; Acc_H: harmonic mean of the two."
    )


def _document(title: str, body: str, payload: Mapping[str, Any]) -> str:
    here = Path(__file__).parent
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    data = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(title)}</title><style>{style}</style></head>
<body>
{body}
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body></html>
"""
