"""Where a stream's features lie at four stages of it, in two dimensions: t-SNE (van der Maaten & Hinton, 2008).

Needs scikit-learn, from the extra `demo`.
"""

from __future__ import annotations

import math
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from owttt._utils.optional import require
from owttt.adapter import Adapter
from owttt.bench.records import EmbeddingRecord
from owttt.bench.steps import device_of
from owttt.data.streams.stream import Stream

STAGES: Final = (0.25, 0.5, 0.75, 1.0)
"""Shares of the stream after which its features are looked at."""
SAMPLES: Final = 1000
"""How many of the stream are shown, at even distances; the same at every stage."""


@final
class Embedding:
    """Looks at some samples of a stream as an adapter goes through it."""

    def __init__(self, adapter: Adapter, stream: Stream) -> None:
        places = np.linspace(0, len(stream.plan) - 1, min(SAMPLES, len(stream.plan))).astype(np.int64)
        x, self.labels = stream.at(places)
        self.adapter = adapter
        self.batches = torch.split(x, stream.spec.batch_size)
        self.shares = {math.ceil(share * len(stream)): share for share in STAGES}
        self.stages: list[dict[str, Any]] = []

    @torch.no_grad()
    def after(self, number: int) -> None:
        """Look, if a stage ends with the batch of this number, counted from 1."""
        if number not in self.shares:
            return
        batches = [batch.to(device_of(self.adapter)) for batch in self.batches]
        features = torch.cat([self.adapter.method(batch).features for batch in batches])
        predicted = torch.cat([self.adapter.predict(batch).labels for batch in batches])
        points = flat(normalize(features).double().cpu().numpy())
        self.stages.append(
            {
                "share": self.shares[number],
                "x": points[:, 0].round(2).tolist(),
                "y": points[:, 1].round(2).tolist(),
                "predicted": predicted.tolist(),
            }
        )

    def record(self) -> EmbeddingRecord:
        """Return what was seen."""
        return {"labels": self.labels.tolist(), "stages": self.stages}


def flat(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return t-SNE's two dimensions of features `(N, D)`, the same every time."""
    manifold = require("sklearn.manifold", "t-SNE", extra="demo")
    perplexity = min(30.0, (len(features) - 1) / 3)
    tsne = manifold.TSNE(2, perplexity=perplexity, init="pca", random_state=0)
    points: NDArray[np.float64] = tsne.fit_transform(features)
    return points.astype(np.float64)
