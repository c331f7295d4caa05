"""The detector all methods share: a score of each sample, a window of recent scores, a threshold that splits them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import ClassVar, Final, final

import torch
from torch import Tensor, nn

from owttt._utils import plugins
from owttt._utils.queue import Queue
from owttt._utils.suggest import suggest
from owttt.functional import (
    centered_score,
    depth_score,
    energy_score,
    evidence_threshold,
    max_softmax_score,
    nearest_score,
    otsu_threshold,
    residual_score,
)
from owttt.source import SourceStats, joint_of
from owttt.types import Forward, Strangers, Verdict

Score = Callable[[Forward, SourceStats], Tensor]
"""Scores `(B,)` of a batch, high = unknown, any finite range."""


def _cosine(out: Forward, source: SourceStats) -> Tensor:
    return nearest_score(out.cosines(source.prototypes))


def _centered(out: Forward, source: SourceStats) -> Tensor:
    return centered_score(out.features, source.class_means, source.mean)


def _energy(out: Forward, _: SourceStats) -> Tensor:
    return energy_score(out.logits)


def _max_softmax(out: Forward, _: SourceStats) -> Tensor:
    return max_softmax_score(out.logits)


def _joint(out: Forward, source: SourceStats) -> Tensor:
    cosine = _cosine(out, source)
    if source.depth_mean is None or source.depth_std is None:
        return cosine
    if out.depth is None or out.depth.shape[1] != len(source.depth_mean):
        channels = "none" if out.depth is None else out.depth.shape[1]
        raise ValueError(
            f"The joint score needs to know how samples look to the layers on the way: {len(source.depth_mean)} "
            f"channels as in the source statistics, got {channels}. Other normalization layers were called than then, "
            "or a method of your own left `depth` out of its Forward. Take another score, e.g. score='cosine'."
        )
    terms = {"cosine": cosine, "depth": depth_score(out.depth, source.depth_mean, source.depth_std)}
    if "residual" in source.joint_units:
        terms["residual"] = residual_score(out.features, source.class_basis.to(source.mean), source.mean)
    return joint_of(terms, source.joint_units)


@dataclass(frozen=True)
class NamedScore:
    """A score with a name; `unit` if its natural range is [0, 1] (cosines of signed features go on to 2)."""

    name: str
    function: Score
    unit: bool
    way_out: str = ""
    """How to do without it, where it is a method's own."""
    like: str | None = None
    """The score whose quantiles of the source it is held against; its own, unless it says otherwise."""
    watches: bool = False
    """Whether it asks how samples look to the layers on the way (`Forward.depth`)."""
    version: int = 1
    """Counts the changes that alter its numbers."""

    def __call__(self, out: Forward, source: SourceStats) -> Tensor:
        """Return the scores of a batch."""
        return self.function(out, source)

    def describe(self, source: SourceStats) -> str:
        """Return what it is, for the record: more than its name where looks decide, of which a digest is told."""
        if not self.watches:
            return self.name
        looks = source.looks_fingerprint[:8]
        return f"{self.name}, version {self.version}, looks {looks}" if looks else f"{self.name}, without looks"


DEFAULT_SCORE: Final = "cosine"
DEFAULT_THRESHOLD: Final = "evidence"
FEW_STRANGERS: Final = 0.05
LEFT_UNKNOWN: Final = 0.05
"""Where so many samples are distinct strangers, these are what is unknown, and of the others one in twenty at most."""
_OLD_SPELLINGS: Final = {"centred": "centered"}
SCORES: Final[dict[str, NamedScore]] = {
    score.name: score
    for score in (
        NamedScore("cosine", _cosine, unit=True),
        NamedScore("centered", _centered, unit=True),
        NamedScore("energy", _energy, unit=False),
        NamedScore("max-softmax", _max_softmax, unit=True),
        NamedScore("joint", _joint, unit=False, watches=True, version=2),
    )
}

Threshold = Callable[[Tensor], Tensor]
"""The threshold τ (a scalar tensor) for a window of scores `(N,)`; unknown is what scores τ or more."""


@dataclass(frozen=True)
class Otsu:
    """The paper's adaptive threshold, optionally kept within bounds (its appendix: [0.4, 1.0]).

    `unit` searches 0, .01, .02, … as the paper does; otherwise 100 steps over the window's own range, for scores of any
    scale.
    """

    weighted: bool = True
    low: float = -math.inf
    high: float = math.inf
    unit: bool = True

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the threshold of a window of scores."""
        return otsu_threshold(scores, weighted=self.weighted, unit=self.unit).clamp(self.low, self.high)


@dataclass(frozen=True)
class Fixed:
    """One threshold for good; infinity switches the detector off."""

    value: float

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the threshold, whatever the scores."""
        return scores.new_tensor(self.value)


@dataclass(frozen=True)
class Evidence:
    """A threshold to deploy: split the window where there is evidence of unknown samples, else keep to a budget.

    `budget` is the share of right answers (by the nearest class mean) that it may cost where nothing speaks for unknown
    samples, measured on the samples that the statistics were fitted on; of new samples it is up to twice as many if
    these were the network's own training images. `quantiles` are what source samples score, at equal steps from 0 to 1,
    and `right` what those score that are classified right: `wrap` takes both from the statistics; for a score of your
    own, give those that you measured (without `right`, the budget is of all samples). `held_out` is the number of
    samples that these are of, if the network was not trained on them; it is 0 if it was.
    """

    version: ClassVar[int] = 8
    """Counts the changes that alter its numbers: runs of another version are not found again."""
    budget: float = 0.0075
    quantiles: tuple[float, ...] = field(default=(), repr=False)
    right: tuple[float, ...] = field(default=(), repr=False)
    held_out: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.budget < 1:
            raise ValueError(f"budget is a share of the right answers, from 0 to below 1, got {self.budget}.")
        if not isinstance(self.held_out, int) or self.held_out < 0:
            raise ValueError(f"held_out is a number of samples, from 0, got {self.held_out}.")
        if not self.quantiles and (self.right or self.held_out):
            raise ValueError("right and held_out belong to quantiles: give all, or none, and the statistics have them.")
        for name, given in (("quantiles", self.quantiles), ("right", self.right)):
            if given and (len(given) < 3 or sorted(given) != list(given)):
                raise ValueError(
                    f"{name} are at least three increasing numbers, from the least score to the largest, got "
                    f"{', '.join(map(str, given[:5]))}{', …' if len(given) > 5 else ''}."
                )

    def bound(self, score: Score, source: SourceStats) -> Evidence:
        """Return it with the quantiles that the statistics have of a score, unless it has its own."""
        if self.quantiles:
            return self
        found, right = (source_scores(score, source, right=only) for only in (False, True))
        if found is None or right is None:
            raise ValueError(
                "A threshold by evidence needs to know what source samples score, and the statistics do not say it of "
                f"this score, {getattr(score, 'name', score)!r}. Fit them again if they are older than 'evidence' is; "
                "for a score of your own pass threshold=Evidence(quantiles=…), or take another threshold."
            )
        known, of_right = tuple(found.tolist()), tuple(right.tolist())
        held_out = source.held_out(_kept_name(score)) if isinstance(score, NamedScore) else 0
        return replace(self, quantiles=known, right=of_right, held_out=held_out)

    def describe(self) -> str:
        """Return what it is, for the record; quantiles as the beginning of their SHA-256."""
        told = hashlib.sha256(repr((self.quantiles, self.right)).encode()).hexdigest()[:8]
        held_out = f", held_out={self.held_out}" if self.held_out else ""
        return f"Evidence(budget={self.budget}, quantiles={told}{held_out})"

    def __call__(self, scores: Tensor, explained: float = 0.0, *, corrected: bool = False) -> Tensor:
        """Return the threshold of a window of scores; distinct strangers, a share of the stream, are no part of it."""
        if not self.quantiles:
            raise ValueError("A threshold by evidence needs the quantiles of source scores; `wrap` gives it these.")
        source, right = (torch.tensor(one, dtype=torch.float64) for one in (self.quantiles, self.right))
        of_right = right if self.right else None
        found = evidence_threshold(scores, source, self.budget, of_right, self.held_out, corrected=corrected)
        if explained < FEW_STRANGERS:
            return found
        return torch.maximum(found, scores.quantile(1 - LEFT_UNKNOWN))


OFF: Final = Fixed(math.inf)
THRESHOLDS: Final[dict[str, Threshold]] = {
    "evidence": Evidence(),
    "adaptive": Otsu(),
    "adaptive-unweighted": Otsu(weighted=False),
    "off": OFF,
}


def as_score(score: str | Score) -> Score:
    """Look a score up: a name of `SCORES`, one that a package registers, `package.module:function`, or a callable."""
    if callable(score):
        return score
    name = spelled(score)
    if name in SCORES:
        return SCORES[name]
    function = plugins.find(name, "scores")
    if function is None:
        raise ValueError(
            f"No score {score!r}. {suggest(score, score_names())} Or pass a callable, or package.module:function."
        )
    if isinstance(function, NamedScore):
        return function
    if not callable(function):
        raise TypeError(f"{name}: a score is a function of (Forward, SourceStats), got {type(function).__name__}.")
    return NamedScore(name, function, unit=False)


def spelled(score: str) -> str:
    """Return a score's name as it is spelled now."""
    return _OLD_SPELLINGS.get(score, score)


def score_names() -> list[str]:
    """Return the names of all scores, those of other packages included."""
    return [*SCORES, *plugins.registered("scores")]


def source_scores(score: Score, source: SourceStats, *, right: bool = False) -> Tensor | None:
    """Return the quantiles of what samples score that are like the source's; None where that is unknown.

    They are of samples that the network was not trained on, if there were such; of all, or of those classified right.
    """
    if not isinstance(score, NamedScore):
        return None
    return source.score_quantiles(_kept_name(score), right=right, held_out=True)


def _kept_name(score: NamedScore) -> str:
    """Return the name by which the statistics keep what source samples score."""
    return score.like or score.name


def is_unit(score: Score) -> bool:
    """Whether a score's natural range is [0, 1]; of a caller's function nothing is assumed."""
    return isinstance(score, NamedScore) and score.unit


def as_threshold(threshold: str | float | tuple[float, float] | Threshold, *, unit: bool = True) -> Threshold:
    """Read a threshold: a name, a number (fixed), a pair (adaptive within bounds), or a callable.

    Named and bounded ones search the grid of a score that is `unit` or not.
    """
    if isinstance(threshold, str):
        if threshold not in THRESHOLDS:
            raise ValueError(
                f"No threshold {threshold!r}. {suggest(threshold, THRESHOLDS)} Or a number, two bounds, a callable."
            )
        named = THRESHOLDS[threshold]
        return replace(named, unit=unit) if isinstance(named, Otsu) else named
    if isinstance(threshold, tuple | list):
        if (
            len(threshold) != 2
            or not all(isinstance(end, Real) for end in threshold)
            or not threshold[0] <= threshold[1]
        ):
            raise ValueError(f"Bounds of a threshold are two numbers, the lower one first, got {threshold}.")
        low, high = threshold
        return Otsu(low=low, high=high, unit=unit)
    if isinstance(threshold, bool | type) or not (callable(threshold) or isinstance(threshold, Real | Tensor)):
        raise TypeError(f"A threshold is a name, a number, two bounds or a callable, got {threshold!r}.")
    if isinstance(threshold, Real) or (isinstance(threshold, Tensor) and threshold.numel() == 1):
        if math.isnan(float(threshold)):
            raise ValueError("A fixed threshold must be a number, got NaN.")
        return Fixed(float(threshold))
    if not callable(threshold):
        raise TypeError(f"A fixed threshold is one number, got a tensor of shape {tuple(threshold.shape)}.")
    return threshold


@final
class Detector(nn.Module):
    """Scores, the last `window` of them, and the verdict on a batch."""

    def __init__(self, score: Score, threshold: Threshold, window: int, like: Tensor) -> None:
        super().__init__()
        self.score = score
        self.threshold = threshold
        self.window = Queue(window, (), like)
        self.explained = Queue(window, (), like)

    @torch.no_grad()
    def scores(self, out: Forward, source: SourceStats) -> Tensor:
        """Return the batch's scores, checked."""
        return self.checked(self.score(out, source), out)

    def checked(self, scores: Tensor, out: Forward) -> Tensor:
        """Return scores of a batch if they are one finite number a sample, and raise if not."""
        scores = scores.detach()
        if scores.shape != out.features.shape[:1]:
            raise ValueError(f"Expected one score per sample, {len(out.features)}, got shape {tuple(scores.shape)}.")
        if not scores.isfinite().all():
            raise FloatingPointError(
                "The scores of this batch are not finite: its values overflow, or adaptation has diverged. "
                "Call reset(), lower the learning rate."
            )
        return scores.to(self.window.items.dtype)

    @torch.no_grad()
    def judge(self, scores: Tensor, out: Forward | None = None, *, seen: bool = False) -> Verdict:
        """Hold a batch's scores against the threshold of the window they are part of; nothing is remembered.

        What the method says of the batch counts, too. Strangers are unknown whatever they score: they are no part of
        the window, and their scores are raised to the threshold and to the highest around. If the samples were `seen`,
        the window has scores of them already.
        """
        odd, explained = self._strange(scores, None if out is None else out.strangers)
        window = self.window.values if seen else self.window.joined(scores[~odd])
        recent = self.explained.values if seen else self.explained.joined(explained)
        threshold = torch.as_tensor(self._threshold(window, float(recent.mean()), out)).to(scores)
        if threshold.dim() != 0 or threshold.isnan():
            raise ValueError(f"A threshold must be one number, got {threshold.tolist()}.")
        known = (scores < threshold) & ~odd
        if bool(odd.any()):
            highest = torch.cat((window.to(scores), scores, threshold[None].nan_to_num(posinf=-math.inf))).amax()
            scores = scores.where(~odd, highest)
        return Verdict(scores, threshold, known, odd)

    def _threshold(self, window: Tensor, explained: float, out: Forward | None) -> Tensor | float:
        """Return the threshold of a window of scores, a share of the samples being distinct strangers."""
        if not len(window):
            return math.inf
        if isinstance(self.threshold, Evidence):
            return self.threshold(window, explained, corrected=out is not None and out.corrected)
        return self.threshold(window)

    def observe(self, scores: Tensor, strangers: Strangers | None = None) -> None:
        """Remember a batch's scores, but for those of strangers."""
        odd, explained = self._strange(scores, strangers)
        self.window.push(scores[~odd])
        self.explained.push(explained)

    def _strange(self, scores: Tensor, strangers: Strangers | None) -> tuple[Tensor, Tensor]:
        """Return which samples are strangers, and which of these are distinct; none if the detector is off."""
        none = torch.zeros_like(scores, dtype=torch.bool)
        if strangers is None or self.threshold == OFF:
            return none, none
        return strangers.which, strangers.which if strangers.distinct else none
