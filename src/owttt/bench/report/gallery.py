"""What was rejected and accepted, rightly and wrongly: pictures of a stream with their scores.

A record remembers places in its stream, not pictures: they are made again from the data, where it is there and still is
what it was.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import Final

import numpy as np
from PIL import Image
from torch import Tensor

from owttt.bench.engine import fingerprints
from owttt.bench.outcome import Record
from owttt.bench.report.sections import SHOWN, look_of, plain
from owttt.bench.run import load_model, make_stream
from owttt.bench.selection import short
from owttt.bench.spec import RunSpec
from owttt.data.corruptions.clouds.points import standing
from owttt.data.modalities.pictures import picture
from owttt.types import UNKNOWN

METHOD: Final = "owttt"
EVERYTHING: Final = "all"


def gallery(runs: Sequence[Record], pictures_of: Collection[str]) -> str:
    """Return pictures of one run for every kind of stream whose data sets are all among those named, or `all`."""
    streams: dict[tuple[str, ...], Record] = {}
    for run in sorted(runs, key=_unusual):
        sets = data_sets(run)
        allowed = EVERYTHING in pictures_of or set(sets) <= set(pictures_of)
        if allowed and len(sets) > 1 and run["spec"]["method"] == METHOD:
            streams.setdefault((run["spec"]["model"], *sets), run)
    if not streams:
        return ""
    parts = "".join(map(_stream, streams.values()))
    return f"<h2 id=gallery>Gallery: what {METHOD} made of it</h2>{parts}"


def data_sets(run: Record) -> tuple[str, ...]:
    """Return the data sets that a run's stream draws from, whatever their corruption."""
    stream = run["spec"]["stream"]
    return tuple(name.partition("@")[0] for name in (stream["known"], *stream["unknown"]))


def _unusual(run: Record) -> tuple[bool, ...]:
    """Sort the method as it is before its variants, and one corruption before others."""
    spec = run["spec"]
    return bool(spec["options"]), spec["threshold"] != "adaptive", look_of(run) != SHOWN


def _stream(run: Record) -> str:
    spec = RunSpec.parse(run["spec"])
    against = " + ".join(map(short, data_sets(run)[1:]))
    threshold = run["curves"]["threshold"][-1]
    last = "" if threshold is None else f", last τ {threshold:.2f}"
    title = f"{PurePath(spec.model).name}: {short(spec.stream.known)}, {look_of(run)}, against {against}{last}"
    try:
        content = _verdicts(spec, run)
    except (OSError, ValueError) as error:
        content = f"<p>No pictures: {html.escape(plain(str(error)))}</p>"
    return f"<h3>{html.escape(title)}</h3>{content}"


def _verdicts(spec: RunSpec, run: Record) -> str:
    if fingerprints(spec) != run["fingerprints"]:
        raise ValueError("the data or the model is no longer what this run met.")
    model = load_model(spec)
    stream = make_stream(spec, model)
    parts = []
    for verdict, examples in run["examples"].items():
        if examples:
            samples = stream.at(np.array([example["place"] for example in examples])).x
            images = standing(samples, stream.known[0].upright) if samples.dim() == 3 else samples
            texts = (_picture(x, example, model.names) for x, example in zip(images, examples, strict=True))
            style = "gallery wrong" if verdict.endswith("wrongly") else "gallery"
            parts.append(f'<h4>{verdict}</h4><div class="{style}">{"".join(texts)}</div>')
    return "".join(parts)


def _picture(x: Tensor, example: Record, names: Sequence[str]) -> str:
    truth, answer = (_class(example[key], names) for key in ("label", "predicted"))
    said = truth if truth == answer else f"{truth} → {answer}"
    return f"<figure>{embedded(x, said)}<figcaption>{example['score']:.2f}<br>{html.escape(said)}</figcaption></figure>"


def embedded(x: Tensor, description: str) -> str:
    """Return an image in 0 … 1 or a cloud as a picture within the page."""
    pixels = picture(x) if x.dim() == 2 else x.mul(255).round().clamp(0, 255).byte()
    file = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(file, "png", optimize=True)
    source = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{html.escape(description)}" src="data:image/png;base64,{source}">'


def _class(label: int, names: Sequence[str]) -> str:
    return "unknown" if label == UNKNOWN else names[label].partition(",")[0]
