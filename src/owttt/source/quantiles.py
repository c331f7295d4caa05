"""How the source's own samples score: quantiles of every named score, to hold a stream's scores against.

They are kept of all samples, and of those that are classified right (whose class mean is the nearest): rejecting one of
these costs an answer, rejecting another does not. Where there are samples that the network was not trained on, they are
kept of these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt.functional import centered_score, cosine_score, cosine_similarity, energy_score, max_softmax_score, wide

STEPS: Final = 201
"""Quantiles that are kept of each score, at equal steps from 0 to 1."""
CAPACITY: Final = 5000
"""Samples that quantiles are taken of; of more, every second, fourth, … one."""
FEW_RIGHT: Final = 50
"""Samples classified right below which quantiles of these alone would tell nothing; they are of all samples then."""
DRAWN: Final = 2000
"""Features that are drawn where no samples were measured."""

_SCORES: Final[Mapping[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]]] = {
    "cosine": lambda z, _, means, __: cosine_score(z, F.normalize(means, dim=1)),
    "centered": lambda z, _, means, mean: centered_score(z, means, mean),
    "energy": lambda _, logits, __, ___: energy_score(logits),
    "max-softmax": lambda _, logits, __, ___: max_softmax_score(logits),
}
PREFIX: Final = "quantiles_"
"""What the names of these tensors begin with, among the statistics."""
FEATURE_SCORES: Final = ("cosine", "centered")


def tensor_name(score: str, *, right: bool = False, held_out: bool = False) -> str:
    """Return the name of a score's quantiles among the statistics: of which samples they are."""
    return PREFIX + "held_out_" * held_out + "right_" * right + score.replace("-", "_")


class ScoreSample:
    """Some of the source's samples, evenly over all batches; what they score is known once the class means are."""

    def __init__(self) -> None:
        self._kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self._stride = 1
        self._seen = 0

    def add(self, features: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Take every so many samples of a batch, fewer and fewer as there are more."""
        some = slice(-self._seen % self._stride, None, self._stride)
        self._kept.append((features[some].clone(), wide(logits[some]).clone(), labels[some].clone()))
        self._seen += len(features)
        while sum(len(part) for part, *_ in self._kept) > 2 * CAPACITY:
            features, logits, labels = self._joined()
            self._kept = [(features[::2], logits[::2], labels[::2])]
            self._stride *= 2

    def __len__(self) -> int:
        return sum(len(labels) for *_, labels in self._kept)

    def right(self, class_means: Tensor) -> Tensor:
        """Return which samples are classified right, `(N,)` bool."""
        features, _, labels = self._joined()
        return cosine_similarity(features, F.normalize(class_means.to(features), dim=1)).argmax(dim=1) == labels

    def result(self, class_means: Tensor, mean: Tensor, *, held_out: bool = False) -> dict[str, Tensor]:
        """Return the quantiles of every named score, by name of the tensor."""
        features, logits, _ = self._joined()
        means, middle = class_means.to(features), mean.to(features)
        right = self.right(class_means)
        some = right if int(right.sum()) >= FEW_RIGHT else torch.ones_like(right)
        found = {}
        for name, function in _SCORES.items():
            scores = function(features, logits, means, middle)
            found[tensor_name(name, held_out=held_out)] = quantiles_of(scores)
            found[tensor_name(name, held_out=held_out, right=True)] = quantiles_of(scores[some])
        return found

    def _joined(self) -> tuple[Tensor, Tensor, Tensor]:
        features, logits, labels = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
        return features, logits, labels


def quantiles_of(scores: Tensor) -> Tensor:
    """Return the quantiles of scores at equal steps from 0 to 1."""
    steps = torch.linspace(0, 1, STEPS, dtype=scores.dtype, device=scores.device)
    return scores.quantile(steps)


def drawn_quantiles(score: str, class_means: Tensor, class_covariances: Tensor, mean: Tensor) -> Tensor:
    """Return the quantiles of a score of features, as Gaussians of the classes tell: for statistics without samples.

    Features are drawn from every class's Gaussian, always the same ones. On test images of the shipped models the
    median of the cosine score agrees to 0.01 and the 95th percentile to 0.06.
    """
    generator = torch.Generator().manual_seed(0)
    means, spreads = class_means.cpu().double(), class_covariances.cpu().double()
    number = max(2, DRAWN // len(means))
    drawn = []
    for center, spread in zip(means, spreads, strict=True):
        noise = torch.randn(number, len(center), generator=generator, dtype=torch.float64)
        drawn.append(center + (noise * spread.clamp_min(0).sqrt() if spread.dim() == 1 else noise @ _root(spread)))
    features = torch.cat(drawn)
    return quantiles_of(_SCORES[score](features, features, means, mean.cpu().double()))


def _root(covariance: Tensor) -> Tensor:
    """Return R with RᵀR = covariance, which may be singular."""
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    return root
