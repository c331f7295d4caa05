"""How the source's own samples score: quantiles of every named score, to hold a stream's scores against.

They are kept of all samples, and of those that are classified right (whose class mean is the nearest): rejecting one of
these costs an answer, rejecting another does not. Where there are samples that the network was not trained on, they are
kept of these, too. How samples look to the layers on the way is kept as mean and deviation of every channel.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt.functional import (
    centered_score,
    class_basis,
    cosine_score,
    cosine_similarity,
    depth_score,
    energy_score,
    joint_score,
    max_softmax_score,
    residual_score,
    wide,
)

STEPS: Final = 201
"""Quantiles that are kept of each score, at equal steps from 0 to 1."""
CAPACITY: Final = 5000
"""Samples that quantiles are taken of; of more, every second, fourth, … one."""
NUMBERS: Final = 2**25
"""Numbers that may be kept of samples: of a network with very many channels fewer samples are taken."""
FEW_RIGHT: Final = 50
"""Samples classified right below which quantiles of these alone would tell nothing; they are of all samples then."""
DRAWN: Final = 2000
"""Features that are drawn where no samples were measured."""

PREFIX: Final = "quantiles_"
"""What the names of these tensors begin with, among the statistics."""
DEPTH_STATISTICS: Final[tuple[str, str]] = ("depth_mean", "depth_std")
"""Mean and deviation of how samples look to the layers on the way."""
JOINT_TERMS: Final = ("cosine", "residual", "depth")
"""Terms of the joint score. Networks without BatchNorm have no residual: on our transformer it did harm."""
FEATURE_SCORES: Final = ("cosine", "centered", "residual")
"""Scores that features alone decide."""


def tensor_name(score: str, *, right: bool = False, held_out: bool = False) -> str:
    """Return the name of a score's quantiles among the statistics: of which samples they are."""
    return PREFIX + "held_out_" * held_out + "right_" * right + score.replace("-", "_")


@final
class Reference(NamedTuple):
    """What features are scored against."""

    class_means: Tensor
    mean: Tensor
    basis: Tensor

    @classmethod
    def of(cls, class_means: Tensor, mean: Tensor) -> Reference:
        """Return the reference that class means and the mean of all make."""
        return cls(class_means, mean, class_basis(class_means, mean))

    def scores(self, features: Tensor) -> dict[str, Tensor]:
        """Return all scores that features decide, but for the joint one."""
        return {
            "cosine": cosine_score(features, F.normalize(self.class_means, dim=1)),
            "centered": centered_score(features, self.class_means, self.mean),
            "residual": residual_score(features, self.basis, self.mean),
        }


class Samples(NamedTuple):
    """What is kept of samples: features, logits, labels, and how they look to the layers on the way, if it is known."""

    features: Tensor
    logits: Tensor
    labels: Tensor
    depth: Tensor | None

    def every(self, start: int, step: int) -> Samples:
        """Return some of the samples."""
        some = slice(start, None, step)
        depth = None if self.depth is None else self.depth[some].clone()
        return Samples(self.features[some].clone(), wide(self.logits[some]).clone(), self.labels[some].clone(), depth)


class ScoreSample:
    """Some of the source's samples, evenly over all batches; what they score is known once the class means are."""

    def __init__(self, *, residual: bool = True) -> None:
        self._residual = residual
        self._kept: list[Samples] = []
        self._stride = 1
        self._seen = 0

    def add(self, features: Tensor, logits: Tensor, labels: Tensor, depth: Tensor | None = None) -> None:
        """Take every so many samples of a batch, fewer and fewer as there are more."""
        self._kept.append(Samples(features, logits, labels, depth).every(-self._seen % self._stride, self._stride))
        self._seen += len(features)
        capacity = CAPACITY if depth is None else min(CAPACITY, NUMBERS // depth.shape[1])
        while len(self) > 2 * capacity:
            self._kept = [self._joined().every(0, 2)]
            self._stride *= 2

    def __len__(self) -> int:
        return sum(len(part.labels) for part in self._kept)

    def right(self, class_means: Tensor) -> Tensor:
        """Return which samples are classified right, `(N,)` bool."""
        kept = self._joined()
        cosines = cosine_similarity(kept.features, F.normalize(class_means.to(kept.features), dim=1))
        return cosines.argmax(dim=1) == kept.labels

    def result(self, class_means: Tensor, mean: Tensor) -> dict[str, Tensor]:
        """Return the quantiles of every named score, and mean and deviation of looks, by name of the tensor."""
        depth = self._joined().depth
        looks: dict[str, Tensor] = {}
        if depth is not None:
            looks |= zip(DEPTH_STATISTICS, (depth.mean(dim=0), depth.std(dim=0)), strict=True)
        scores = self._scores(class_means, mean, looks)
        units = {name: quantiles_of(values) for name, values in scores.items()}
        return self._quantiles(class_means, scores, units, held_out=False) | looks

    def held_out_result(self, class_means: Tensor, mean: Tensor, known: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the quantiles of samples that are held out, given what the others' `result` is."""
        looks = {name: known[name] for name in DEPTH_STATISTICS if name in known}
        scores = self._scores(class_means, mean, looks)
        units = {name: known[tensor_name(name)] for name in scores}
        return self._quantiles(class_means, scores, units, held_out=True)

    def _scores(self, class_means: Tensor, mean: Tensor, looks: dict[str, Tensor]) -> dict[str, Tensor]:
        features, logits, _, depth = self._joined()
        scores = Reference.of(class_means.to(features), mean.to(features)).scores(features)
        if not self._residual:
            del scores["residual"]
        if depth is not None and looks:
            scores["depth"] = depth_score(depth, *(looks[name].to(depth) for name in DEPTH_STATISTICS))
        return scores | {"energy": energy_score(logits), "max-softmax": max_softmax_score(logits)}

    def _quantiles(
        self, class_means: Tensor, scores: dict[str, Tensor], units: dict[str, Tensor], *, held_out: bool
    ) -> dict[str, Tensor]:
        right = self.right(class_means)
        some = right if int(right.sum()) >= FEW_RIGHT else torch.ones_like(right)
        found = {}
        joint = {"joint": joint_of(scores, units)} if "depth" in scores else {}
        for name, values in (scores | joint).items():
            found[tensor_name(name, held_out=held_out)] = quantiles_of(values)
            found[tensor_name(name, held_out=held_out, right=True)] = quantiles_of(values[some])
        return found

    def _joined(self) -> Samples:
        features, logits, labels, depths = zip(*self._kept, strict=True)
        known = [depth for depth in depths if depth is not None]
        same = len(known) == len(depths) and len({depth.shape[1] for depth in known}) == 1
        depth = torch.cat(known) if same else None
        return Samples(torch.cat(features), torch.cat(logits), torch.cat(labels), depth)


def joint_of(scores: dict[str, Tensor], quantiles: dict[str, Tensor]) -> Tensor:
    """Return the joint score, given its terms and what the source's samples score by each of them."""
    terms = (name for name in JOINT_TERMS if name in quantiles)
    return joint_score((scores[name], quantiles[name].to(scores[name])) for name in terms)


def quantiles_of(scores: Tensor) -> Tensor:
    """Return the quantiles of scores at equal steps from 0 to 1."""
    steps = torch.linspace(0, 1, STEPS, dtype=scores.dtype, device=scores.device)
    return scores.quantile(steps)


def drawn_quantiles(class_means: Tensor, class_covariances: Tensor, mean: Tensor) -> dict[str, Tensor]:
    """Return the quantiles of scores of features, as Gaussians of the classes tell: for statistics without samples.

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
    scores = Reference.of(means, mean.cpu().double()).scores(torch.cat(drawn))
    return {name: quantiles_of(values) for name, values in scores.items()}


def _root(covariance: Tensor) -> Tensor:
    """Return R with RᵀR = covariance, which may be singular."""
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    return root
