"""What was rejected and accepted, rightly and wrongly: pictures of a stream with their scores.

A record remembers places in its stream, not pictures: they are made again from the data, where it is there.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from PIL import Image
from torch import Tensor

from owttt import models
from owttt.bench.campaign import short
from owttt.bench.report.sections import SHOWN, corruptions_of
from owttt.bench.run import make_stream
from owttt.bench.spec import RunSpec
from owttt.types import UNKNOWN

METHOD: Final = "owttt"
EVERYTHING: Final = "all"

Record = Mapping[str, Any]


def gallery(runs: Sequence[Record], pictures_of: Collection[str]) -> str:
    """Return pictures of one run for every kind of stream whose data sets are all among those named, or `all`."""
    streams: dict[tuple[str, ...], Record] = {}
    for run in sorted(runs, key=lambda run: corruptions_of(run) != SHOWN):
        sets = (run["spec"]["stream"]["known"], *run["spec"]["stream"]["unknown"])
        allowed = EVERYTHING in pictures_of or set(sets) <= set(pictures_of)
        if allowed and len(sets) > 1 and run["spec"]["method"] == METHOD:
            streams.setdefault(sets, run)
    if not streams:
        return ""
    parts = "".join(map(_stream, streams.values()))
    return f"<h2 id=gallery>Gallery: what {METHOD} made of it</h2>{parts}"


def _stream(run: Record) -> str:
    spec = RunSpec.parse(run["spec"])
    model = models.load(spec.model)
    stream = make_stream(spec, model)
    parts = []
    for verdict, examples in run["examples"].items():
        if examples:
            images = stream.at(np.array([example["place"] for example in examples])).x
            texts = (_picture(x, example, model.names) for x, example in zip(images, examples, strict=True))
            style = "gallery wrong" if verdict.endswith("wrongly") else "gallery"
            parts.append(f'<h4>{verdict}</h4><div class="{style}">{"".join(texts)}</div>')
    against = " + ".join(map(short, spec.stream.unknown))
    threshold = run["curves"]["threshold"][-1]
    last = "" if threshold is None else f", last τ {threshold:.2f}"
    title = f"{short(spec.stream.known)}, {corruptions_of(run)}, against {against}{last}"
    return f"<h3>{html.escape(title)}</h3>{''.join(parts)}"


def _picture(x: Tensor, example: Record, names: Sequence[str]) -> str:
    pixels = x.mul(255).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png", optimize=True)
    source = base64.b64encode(file.getvalue()).decode()
    truth, answer = (_class(example[key], names) for key in ("label", "predicted"))
    said = truth if truth == answer else f"{truth} → {answer}"
    return (
        f'<figure><img alt="{html.escape(said)}" src="data:image/png;base64,{source}">'
        f"<figcaption>{example['score']:.2f}<br>{html.escape(said)}</figcaption></figure>"
    )


def _class(label: int, names: Sequence[str]) -> str:
    return "unknown" if label == UNKNOWN else names[label].partition(",")[0]
