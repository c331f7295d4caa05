"""The page of a results folder: what the templates lay out, and what makes it one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from owttt._utils.files import finite
from owttt.bench.records import COSTS_TOLD
from owttt.bench.report.cloud_corruptions import cloud_corruptions
from owttt.bench.report.contents import Contents, read_contents
from owttt.bench.report.gallery import galleries
from owttt.bench.report.grids import HEATS
from owttt.bench.report.loose import Group, groups
from owttt.bench.report.sections import Section, section
from owttt.bench.report.summary import LINE, NAMES, PANEL, summary
from owttt.bench.report.viewer import View, group_view, table_view
from owttt.bench.text import CLOSE

_SCRIPT: Final = Path(__file__).parent / "templates" / "page.js"


@final
@dataclass(frozen=True)
class Link:
    """An entry of the menu; `detail` tells apart those of one title."""

    anchor: str
    title: str
    detail: str = ""
    inner: bool = False


def render(folder: Path, title: str, pictures_of: Collection[str] = ()) -> str:
    """Return the page of a results folder: its tables and figures, and the runs that belong to none.

    Args:
        folder: What `owttt run` and `owttt bench` wrote.
        title: Of the page.
        pictures_of: Data sets whose pictures it may show, or `all`; without any, torch is not needed.

    Returns:
        HTML that holds all it needs.

    Raises:
        FileNotFoundError: The folder holds no results.
        ValueError: A table cannot be read, or no run draws from a data set of `pictures_of`.
    """
    contents = read_contents(folder)
    sections = [section(table, folder / "figures") for table in contents.tables]
    loose = groups(contents.loose)
    clouds = cloud_corruptions(contents.runs) if pictures_of else []
    pictured = galleries(contents, loose, pictures_of) if pictures_of else []
    ends = [("clouds", "Clouds under their corruptions", clouds), ("gallery", "Gallery", pictured)]
    shown = {
        "title": title,
        "versions": _versions(contents),
        "runs": len(contents.runs),
        "summary": summary(contents.tables),
        "sections": sections,
        "groups": loose,
        "clouds": clouds,
        "galleries": pictured,
        "links": _links(sections, loose) + [Link(anchor, name) for anchor, name, there in ends if there],
    }
    return _document(shown, _views(contents, sections, loose))


def _views(contents: Contents, sections: Sequence[Section], loose: Sequence[Group]) -> dict[str, View]:
    """Return what the script draws, by the sections it draws in."""
    tables = zip(contents.tables, sections, strict=True)
    views = {one.anchor: table_view(table) for table, one in tables if one.viewed}
    return views | {group.anchor: group_view(group.runs) for group in loose}


def _versions(contents: Contents) -> list[str]:
    """Return what the results were made with."""
    environments = [table.record["environment"] for table in contents.tables]
    environments += [run["environment"] for run in contents.loose]
    told = ("owttt", "torch", "numpy", "python", "machine")
    return sorted({", ".join(f"{name} {one[name]}" for name in told if name in one) for one in environments})


def _links(sections: Sequence[Section], loose: Sequence[Group]) -> list[Link]:
    often = Counter([one.title for one in sections] + [one.title for one in loose])
    links = [Link(one.anchor, one.title, one.about if often[one.title] > 1 else "") for one in sections]
    links += [Link("runs", "Runs")] if loose else []
    inner = [Link(one.anchor, one.title, one.about if often[one.title] > 1 else "", inner=True) for one in loose]
    return links + inner


def _document(shown: Mapping[str, Any], views: Mapping[str, View]) -> str:
    templates = Environment(
        loader=PackageLoader("owttt.bench.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = templates.get_template("page.css").render(heats=HEATS)
    script = _SCRIPT.read_text(encoding="utf-8")
    constants = {"panel_width": PANEL, "line": LINE, "names": NAMES, "close": CLOSE, "costs_told": COSTS_TOLD}
    return templates.get_template("page.html").render(
        **shown,
        **constants,
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=Markup(_json({"views": views})),
    )


def _policy(style: str, script: str) -> str:
    """Return what the page may load and run: pictures that it holds, its own style and its own script."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _json(content: Mapping[str, Any]) -> str:
    """Return JSON that cannot end the element it is in."""
    text = json.dumps(finite(content), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")
