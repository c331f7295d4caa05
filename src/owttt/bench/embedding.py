"""Where a stream's features lie at four stages of it, in two dimensions: t-SNE (van der Maaten & Hinton, 2008).

Needs scikit-learn, from the extra `demo`.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from owttt._utils.optional import require
from owttt.adapter import Adapter
from owttt.bench.engine import prepare
from owttt.bench.run import device_of, record, steps
from owttt.bench.spec import RunSpec

STAGES: Final = (0.25, 0.5, 0.75, 1.0)
"""Shares of the stream after which its features are looked at."""
SAMPLES: Final = 1000
"""How many of the stream are shown, at even distances; the same at every stage."""


def embed(spec: RunSpec) -> dict[str, Any]:
    """Do a run and return its record, with an embedding of its features at every stage."""
    adapter, stream = prepare(spec)
    places = np.linspace(0, len(stream.plan) - 1, min(SAMPLES, len(stream.plan))).astype(np.int64)
    x, y = stream.at(places)
    at = {math.ceil(share * len(stream)): share for share in STAGES}
    done, stages = [], []
    for number, step in enumerate(steps(adapter, stream, len(stream.classes)), start=1):
        done.append(step)
        if number in at:
            stages.append({"share": at[number], **_stage(adapter, torch.split(x, spec.stream.batch_size))})
    return {**record(spec, adapter, stream, done), "embedding": {"labels": y.tolist(), "stages": stages}}


@torch.no_grad()
def _stage(adapter: Adapter, batches: tuple[Tensor, ...]) -> dict[str, Any]:
    """Look at samples with the model as it is now."""
    batches = tuple(batch.to(device_of(adapter)) for batch in batches)
    features = torch.cat([adapter.method(batch).features for batch in batches])
    predicted = torch.cat([adapter.predict(batch).label for batch in batches])
    points = flat(normalize(features).double().cpu().numpy())
    return {
        "x": points[:, 0].round(2).tolist(),
        "y": points[:, 1].round(2).tolist(),
        "predicted": predicted.tolist(),
    }


def flat(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return t-SNE's two dimensions of features `(N, D)`, the same every time."""
    manifold = require("sklearn.manifold", "t-SNE", extra="demo")
    perplexity = min(30.0, (len(features) - 1) / 3)
    tsne = manifold.TSNE(2, perplexity=perplexity, init="pca", random_state=0)
    points: NDArray[np.float64] = tsne.fit_transform(features)
    return points.astype(np.float64)
