"""Texts in a results folder that try to become a part of the page."""

import random
import tempfile
from pathlib import Path

from owttt.bench.report import render
from tests.attack.tally import Tally
from tests.bench.test_report import Tags, fake_run, fake_table, fill

PARTS = (
    *(
        "<script>alert(1)</script>",
        "</script><script>alert(1)//",
        "<img src=x onerror=alert(1)>",
        "<svg/onload=alert(1)>",
    ),
    *('"><b onmouseover=alert(1)>', "' onfocus=alert(1) '", "javascript:alert(1)", "{{7*7}}", "{%raw%}", "<!--", "]]>"),
    *(
        "\u2028",
        "\x00",
        "<style>*{display:none}",
        "<base href=//evil>",
        "</title><script>",
        "&lt;script&gt;",
        "\\u003cscript",
    ),
)
FIELDS = ("name", "title", "label", "about", "known", "model")


def pages(tally: Tally, rounds: int, rng: random.Random) -> None:
    """Put hostile texts into any field of records and tables, and look at what the page is made of."""
    for _ in range(rounds):
        bad = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 4)))
        run = fake_run(bad, corruption=bad, unknown=(bad,), options={bad: bad}, threshold=bad, preset=bad)
        run["spec"]["model"] = run["environment"]["owttt"] = bad
        table = fake_table((bad, "other"), (bad, "more"), stand_ins={bad: bad}, **{rng.choice(FIELDS): bad})
        with tempfile.TemporaryDirectory() as place:
            try:
                text = render(fill(Path(place) / "r", [run], [table]), bad)
            except (ValueError, OSError) as error:
                tally.check("json" in str(error), f"{bad!r}: {error}")
                continue
        tags = Tags()
        tags.feed(text)
        tally.check(tags.scripts == 2, f"{bad!r}: {tags.scripts} scripts")
        tally.check(not tags.handlers, f"{bad!r}: handlers {tags.handlers}")
        tally.check(all(source.startswith("data:") for source in tags.sources), f"{bad!r}: a source of its own")
