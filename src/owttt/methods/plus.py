"""OWTTT+: normalize with the statistics of what is known, and of nothing else. Ours; no gradients.

What corruption does to a network is undone for the most part by the statistics it normalizes with, if these are of the
known samples only; of a batch that is half unknown they make things worse. Which samples are known cannot be seen from
scores before the statistics are right, but two other things can:

1. looks       Unknown samples whose statistics differ enough to do harm look different at the first layer. 2-means of
               the samples' first-layer moments finds two groups (`looks`, `two_groups`).
2. anchor      Each group is run with its own statistics. Known samples are then close to the prototypes whatever their
               corruption was; unknown ones, normalized like this, still are not. The group with the lower median score
               1 - max cos is the anchor. Its own statistics count only if looks do tell: with these the other group
               must score higher, in `apart` of all pairs of samples.
3. evidence    Statistics are judged by the median score that the anchor has with them. Of those in use, of the batch
               and of the anchor the best are taken, the earlier ones unless others are better by 2 %; but the source's
               unless these are better by `margin`.
4. pruning     Those of the whole batch are mixed with unknown samples that look like known ones; if they are taken, the
               half with the lowest scores gives the statistics, `rounds` times.
5. memory      Statistics in use move by `momentum` towards those found; where these are better on the anchor by `jump`
               the stream has changed, and they are taken as they are. If not even a quarter of the anchor scores like
               the `limit` of source samples that score lowest, nothing here is known, and nothing moves, unless back
               to the source's.
6. rest        While samples look as they did at the last search, in the mean, the search rests: for 1, then for up to
               `rest` batches after searches that found no change. Most batches cost little more than one pass then.

A batch of at least `chunk` samples is answered with the statistics found in it; smaller ones with those in use, and
gathered until there are enough. After the first `GLANCE` of them those in use are held against the source's, so that
statistics of what is long gone do no harm for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from owttt.functional import nearest_score, two_groups
from owttt.methods.base import Method
from owttt.methods.gathering import Gathered, zeros_like_source
from owttt.network.inputs import Batch
from owttt.network.statistics import looks, mixed, normalization
from owttt.types import Forward, Verdict

LEAST_GROUP: Final = 24
"""Samples that a group must have for statistics of its own."""
QUARTER: Final = 0.25
"""The share of the anchor that must score like known samples."""
TIE: Final = 0.02
"""The share of a score below which a difference does not count."""
GLANCE: Final = 32
"""Samples gathered after which statistics in use have to be better than the source's, or go."""
SAME: Final = 8.0
"""How much farther than chance would have it the mean look may move, squared, and still be the same."""


@dataclass(frozen=True)
class _Candidate:
    """Statistics, and the scores that the anchor has with them."""

    statistics: Tensor
    scores: Tensor

    @property
    def median(self) -> float:
        return float(self.scores.median())

    def better(self, other: _Candidate, by: float) -> bool:
        return self.median < (1 - by) * other.median


@dataclass(frozen=True)
class _Found:
    """The statistics for a batch, how it looks in the mean, and what the search, if there was one, made of it."""

    statistics: Tensor
    look: Tensor
    searched: bool = True
    jumped: bool = False


@final
class Plus(Method):
    """Statistics of the known samples, found by evidence. Options: see the steps above."""

    name = "owttt+"
    cost = 2.9
    color = "#7a3fb0"
    gathers = True
    present: Tensor
    look: Tensor
    pause: Tensor
    waiting: Tensor

    def __init__(
        self,
        *,
        momentum: float = 0.3,
        margin: float = 0.08,
        jump: float = 0.1,
        rounds: int = 2,
        limit: float = 0.75,
        apart: float = 0.7,
        rest: int = 3,
        chunk: int = 128,
    ) -> None:
        super().__init__()
        if not 0 < momentum <= 1:
            raise ValueError(f"momentum is a share above 0 and up to 1, got {momentum}.")
        if not 0 <= margin < 1 or not 0 <= jump < 1:
            raise ValueError(f"margin and jump are shares of a score, from 0 to below 1, got {margin} and {jump}.")
        if rounds < 0:
            raise ValueError(f"rounds of pruning are counted from 0, got {rounds}.")
        if not 0 < limit <= 1:
            raise ValueError(f"limit is a share of the source's samples, above 0 and up to 1, got {limit}.")
        if not 0.5 <= apart <= 1:
            raise ValueError(f"apart is a share of pairs, from 0.5 to 1, got {apart}.")
        if rest < 0:
            raise ValueError(f"rest is a number of batches, from 0, got {rest}.")
        if chunk < LEAST_GROUP:
            raise ValueError(f"A chunk must hold at least {LEAST_GROUP} samples, got {chunk}.")
        self.momentum = momentum
        self.margin = margin
        self.jump = jump
        self.rounds = rounds
        self.limit = limit
        self.apart = apart
        self.rest = rest
        self.chunk = chunk

    def setup(self) -> None:
        """Start with the source's statistics, and with nothing gathered."""
        self.normalization = normalization(self.network, self.source)
        self.register_buffer("present", self.normalization.source.clone())
        self.register_buffer("look", looks(self.network, zeros_like_source(self.source)).mean(dim=0))
        self.register_buffer("pause", torch.zeros((), dtype=torch.long, device=self.present.device))
        self.register_buffer("waiting", torch.zeros_like(self.pause))
        quantiles = self.source.score_quantiles()
        assert quantiles is not None
        self.farthest = float(quantiles.quantile(self.limit))
        self.gathered = Gathered(self.source, self.chunk)

    @torch.no_grad()
    def forward(self, x: Batch) -> Forward:
        """Answer a batch with the statistics found in it, or with those in use if it is small."""
        found = None if len(x) < self.chunk else self._found(x)
        out = self.normalization.run(x, self.present if found is None else found.statistics)
        return Forward(out.features, out.logits, found)

    @torch.no_grad()
    def adapt(self, x: Batch, out: Forward, verdict: Verdict) -> None:
        """Keep the statistics that a batch was answered with; gather small ones until there are enough samples."""
        del verdict
        if len(x) >= self.chunk:
            self._keep(out.note)
        elif (gathered := self.gathered.add(x)) is not None:
            self._keep(self._found(gathered))
        elif len(self.gathered) - len(x) < GLANCE <= len(self.gathered):
            self._glance(self.gathered.so_far(x))

    def _glance(self, x: Batch) -> None:
        """Go back to the source's statistics if they suit these samples better than those in use."""
        source, in_use = (self._tried(x, at) for at in (self.normalization.source, self.present))
        if source.better(in_use, by=self.margin):
            self.present.copy_(source.statistics)
            self.waiting.zero_()

    def _keep(self, found: _Found) -> None:
        """Use what was found from here on, and rest for longer the less there is to find."""
        self.present.copy_(found.statistics)
        if not found.searched:
            self.waiting -= 1
            return
        self.look.copy_(found.look)
        self.pause.fill_(0 if found.jumped else min(self.rest, 2 * int(self.pause) + 1))
        self.waiting.copy_(self.pause)

    def _found(self, x: Batch) -> _Found:
        """Return the statistics to use from here on."""
        each = looks(self.network, x)
        look = each.mean(dim=0)
        chance = 2 * each.var(dim=0, correction=0).sum() / len(each)
        if int(self.waiting) and bool((look - self.look).square().sum() <= SAME * chance):
            return _Found(self.present, look, searched=False)
        anchor, part = self._anchor(x, each)
        batch = self._measured(x, anchor)
        in_use, source = (self._tried(x[anchor], at) for at in (self.present, self.normalization.source))
        best = in_use
        for other in (batch, part) if self._tells(x[~anchor], part) else (batch,):
            best = other if other.better(best, by=TIE) else best
        best = best if best.better(source, by=self.margin) else source
        known = best is source or float(best.scores.quantile(QUARTER)) <= self.farthest
        if best is in_use or not known:
            return _Found(self.present, look)
        found = self._pruned(x, best.statistics) if best is batch else best.statistics
        if best.better(in_use, by=self.jump):
            return _Found(found, look, jumped=True)
        return _Found(mixed(self.present, found, self.momentum), look)

    def _tells(self, others: Batch, anchor: _Candidate) -> bool:
        """Whether samples of the other group score higher than those of the anchor, with the anchor's statistics."""
        if not len(others):
            return False
        scores = self._tried(others, anchor.statistics).scores
        return float((scores[:, None] > anchor.scores).to(scores.dtype).mean()) >= self.apart

    def _anchor(self, x: Batch, each: Tensor) -> tuple[Tensor, _Candidate]:
        """Return the group that, normalized by itself, is closest to the prototypes, and its own statistics."""
        second = two_groups(each)
        if int(second.sum()) < LEAST_GROUP or int((~second).sum()) < LEAST_GROUP:
            return torch.ones_like(second), self._measured(x)
        groups = ((group, self._measured(x[group])) for group in (second, ~second))
        return min(groups, key=lambda pair: pair[1].median)

    def _pruned(self, x: Batch, statistics: Tensor) -> Tensor:
        """Return the statistics of the samples that look most known, looked at again and again."""
        for _ in range(self.rounds):
            scores = self._scores(self.normalization.run(x, statistics))
            statistics, _ = self.normalization.measure(x[scores <= scores.median()])
        return statistics

    def _measured(self, x: Batch, judged: Tensor | None = None) -> _Candidate:
        """Take the statistics of these samples; they are judged by all of them, or by some."""
        statistics, out = self.normalization.measure(x)
        scores = self._scores(out)
        return _Candidate(statistics, scores if judged is None else scores[judged])

    def _tried(self, x: Batch, statistics: Tensor) -> _Candidate:
        return _Candidate(statistics, self._scores(self.normalization.run(x, statistics)))

    def _scores(self, out: Forward) -> Tensor:
        return nearest_score(out.cosines(self.source.prototypes))
