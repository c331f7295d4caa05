"""OWTTT+: normalize with the statistics of what is known, and of nothing else. Ours; no gradients.

What corruption does to a network is undone for the most part by the statistics it normalizes with, if these are of the
known samples only; of a batch that is half unknown they make things worse. Which samples are known cannot be seen from
scores before the statistics are right, but it can be seen of groups. With Q(½) the median of the source's centered
scores, the likeness of samples with centered scores s is how many of them score like the source's better half:

    likeness = (share of s <= Q(½)) / ½                  1 for the source itself, near 0 for unknown samples

Centered, because features of a weak network all point in nearly the same direction: normalized by their own statistics,
samples of any kind then have high cosines. Centered ones are not taken in by that.

1. looks       Most kinds of unknown samples look different at the first layer. A mixture of two Gaussians of the
               samples' first-layer moments finds two groups (`looks`, `two_groups`).
2. anchor      Each group is run with its own statistics. Known samples are then close to the prototypes whatever their
               corruption was; unknown ones still are not. The group with the lower first quartile is the anchor.
3. strangers   If the other group is alike with no statistics at hand (its own, the anchor's, those in use, the
               source's), its likeness being below `strange` times that of the anchor, it is unknown: it is rejected
               whatever it scores, and what is left is looked at again, up to `PARTS` times. So it is if its likeness
               with the two groups' own statistics is below `strange` times that of the anchor with its own, and with
               all statistics at hand below twice that (`Split.strange`). Samples that could be in either group are
               taken for known ones: how many there are for each one in the smaller group is taken off `strange`. Where
               no group is strange, those that look like earlier strangers are tried as one (`Split.held`).
4. pruning     Unknown samples that do not look strange are still among those that are left. If these are many (with
               the statistics of all, by `MANY` more than of the source's have a high joint score (8), see `excess`),
               the ones that score up to the source's `USUAL` quantile are kept, at least the lowest `keep`; then the
               same again with the statistics of what was kept, for `rounds` rounds.
5. evidence    Statistics are judged by how close samples then are to the prototypes and by how much the answers tell
               (`candidates`), of all samples that are left. Tried are those in use; the pruned ones; and, unless these
               are better than the source's by `jump`, halfway between the two. The best are taken, the earlier ones and
               the source's unless others are better by `TIE`. Where a likeness is below `least` nothing is known, and
               nothing moves, unless back to the source's. If that is so of the anchor and of both groups together,
               with all statistics at hand, all of the samples are strangers; but not before the stream has had a
               likeness of `SEEN·least`: of a network that has learned its training data by heart nothing ever is alike.
6. memory      Statistics in use move by `momentum` towards those found; where these are better by `jump` the stream has
               changed, and they are taken as they are; so they are if those in use are still the source's, or those
               found are. How strangers look is remembered, too.
7. rest        While samples look as they did at the last search, in the mean, the search rests: for 1, 3, up to `rest`
               batches after searches that found no change, not at all after one that found nothing known. Most batches
               cost little more than one pass then.

8. score       With the statistics of the known samples, these look to the layers on the way as the source's do. The
               joint score (`functional.scores`) holds a sample's features and these looks against the source's.

A batch of at least `chunk` samples is answered with the statistics found in it; smaller ones with those in use, and
gathered until there are enough. After the first `GLANCE` of them those in use are held against the source's, so that
statistics of what is long gone do no harm for long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor

from owttt._utils.queue import Kept
from owttt.detector import SCORES
from owttt.functional import depth_score, excess, two_groups
from owttt.methods.base import Method
from owttt.methods.candidates import Candidate, Split
from owttt.methods.gathering import Gathered, zeros_like_source
from owttt.methods.looks import PARTS, KeptLooks, Looks, described, scale_of
from owttt.network.inputs import Batch
from owttt.network.statistics import looks, mixed, normalization
from owttt.types import Forward, Strangers, Verdict

LEAST_GROUP: Final = 16
"""Samples that a group must have for statistics of its own."""
LEAST_STRANGERS: Final = 8
"""Samples that a group must have to be looked at at all."""
MANY: Final = 0.2
"""The excess of high joint scores from which on samples are pruned: corruption alone can make a few of them high."""
USUAL: Final = 0.75
"""The quantile of the source's joint scores up to which a sample looks known."""
TIE: Final = 0.05
"""The gain up to which a difference does not count."""
GLANCE: Final = 32
"""Samples gathered after which statistics in use go if the source's are better by `jump`."""
SEEN: Final = 3.0
"""How many times `least` a likeness must have been before one below `least` means that nothing is known."""
SAME: Final = 8.0
"""How much farther than chance would have it the mean look may move, squared, and still be the same."""


@dataclass(frozen=True)
class _Found:
    """The statistics for a batch, who is strange in it, and what the search, if there was one, found.

    `out` is what the network gives with these statistics, where that is known already; `settled` whether the search may
    rest; `likeness` that of the anchor.
    """

    statistics: Tensor
    strangers: Strangers
    parts: Looks | None = None
    out: Forward | None = None
    settled: bool = True
    likeness: float = 0.0


def _large_enough(one: int, two: int) -> bool:
    """Whether one of two groups can be an anchor, and the other can be looked at."""
    return max(one, two) >= LEAST_GROUP and min(one, two) >= LEAST_STRANGERS


@final
class Plus(Method):
    """Statistics of the known samples, found by evidence. Options: see the steps above."""

    name = "owttt+"
    version = 10
    cost = 2.4
    color = "#7a3fb0"
    deployed = True
    usual_score = "joint"
    gathers = True
    alike: Tensor
    pause: Tensor
    waiting: Tensor

    def __init__(
        self,
        *,
        momentum: float = 0.3,
        jump: float = 0.1,
        strange: float = 0.4,
        least: float = 0.1,
        keep: float = 0.5,
        rounds: int = 2,
        rest: int = 7,
        chunk: int = 128,
    ) -> None:
        super().__init__()
        if not 0 < momentum <= 1:
            raise ValueError(f"momentum is a share above 0 and up to 1, got {momentum}.")
        if not jump >= 0:
            raise ValueError(f"jump is a gain, from 0, got {jump}.")
        if not 0 <= strange <= 1 or not 0 <= least <= 1:
            raise ValueError(f"strange and least are shares of a likeness, from 0 to 1, got {strange} and {least}.")
        if not 0 < keep <= 1:
            raise ValueError(f"keep is a share of the samples, above 0 and up to 1, got {keep}.")
        if rounds < 0:
            raise ValueError(f"rounds is a number of prunings, from 0, got {rounds}.")
        if rest < 0:
            raise ValueError(f"rest is a number of batches, from 0, got {rest}.")
        if chunk < LEAST_GROUP:
            raise ValueError(f"A chunk must hold at least {LEAST_GROUP} samples, got {chunk}.")
        self.momentum = momentum
        self.jump = jump
        self.strange = strange
        self.least = least
        self.keep = keep
        self.rounds = rounds
        self.rest = rest
        self.chunk = chunk

    def setup(self) -> None:
        """Start with the source's statistics, with nothing gathered and nobody strange."""
        self.network.watches = self.source.depth_mean is not None
        self.normalization = normalization(self.network, self.source)
        self.in_use = Kept(self.normalization.source)
        self.register_buffer("alike", torch.zeros_like(self.source.mean[0]))
        self.kept = KeptLooks(torch.zeros_like(looks(self.network, zeros_like_source(self.source))))
        self.register_buffer("pause", torch.zeros((), dtype=torch.long, device=self.present.device))
        self.register_buffer("waiting", torch.zeros_like(self.pause))
        self.middle = float(self._of_source("centered").quantile(0.5))
        self.of_source = self._of_source("joint")
        self.usual = float(self.of_source.quantile(USUAL))
        self.gathered = Gathered(self.source, self.chunk)

    def _of_source(self, score: str) -> Tensor:
        """Return what the source's samples score, those that the network was trained on."""
        quantiles = self.source.score_quantiles(score)
        assert quantiles is not None
        return quantiles

    @property
    def present(self) -> Tensor:
        """The statistics in use."""
        return self.in_use.value

    @torch.no_grad()
    def forward(self, x: Batch) -> Forward:
        """Answer a batch with the statistics found in it, or with those in use if it is small."""
        found = self._found(x) if len(x) >= self.chunk else self._recalled(x)
        out = self.normalization.run(x, found.statistics) if found.out is None else found.out
        corrected = not self.normalization.is_source(found.statistics)
        return replace(out, note=found, strangers=found.strangers, corrected=corrected)

    @torch.no_grad()
    def adapt(self, x: Batch, out: Forward, verdict: Verdict) -> None:
        """Keep what was found in a batch; gather small ones until there are enough samples."""
        del verdict
        if len(x) >= self.chunk:
            self._keep(out.note)
        elif (gathered := self.gathered.add(x)) is not None:
            self._keep(self._found(gathered))
        elif len(self.gathered) - len(x) < GLANCE <= len(self.gathered):
            self._glance(self.gathered.so_far(x))

    def watch(self) -> dict[str, float]:
        """Say how many kinds of strangers are remembered."""
        return {"strange_looks": float(self.kept.now.strangers)}

    def _glance(self, x: Batch) -> None:
        """Go back to the source's statistics if they suit samples that are not strange better than those in use."""
        others = ~self._recalled(x).strangers.which
        if int(others.sum()) < LEAST_STRANGERS:
            return
        source, in_use = (self._tried(x[others], at) for at in (self.normalization.source, self.present))
        if source.better(in_use, by=self.jump):
            self.present.copy_(source.statistics)
            self.kept.forget()
            self.waiting.zero_()

    def _keep(self, found: _Found) -> None:
        """Use what was found from here on, and rest for longer the less there is to find."""
        self.present.copy_(found.statistics)
        if found.parts is None:
            self.waiting.sub_(1).clamp_(min=0)
            return
        self.kept.keep(found.parts)
        self.alike.clamp_(min=found.likeness)
        self.pause.fill_(min(self.rest, 2 * int(self.pause) + 1) if found.settled else 0)
        self.waiting.copy_(self.pause)

    def _recalled(self, x: Batch) -> _Found:
        """Return what is in use, for a batch that is too small to find anything in it."""
        if self.kept.now.strangers:
            return self._remembered(looks(self.network, x))
        nobody = torch.zeros(len(x), dtype=torch.bool, device=self.present.device)
        return _Found(self.present, Strangers(nobody, False))

    def _remembered(self, raw: Tensor) -> _Found:
        """Return what is in use; strangers are known by their looks."""
        parts = self.kept.now
        return _Found(self.present, Strangers(parts.strange(raw), parts.distinct))

    def _found(self, x: Batch) -> _Found:
        """Return the statistics to use from here on, and who is strange.

        Nothing is looked for among samples that make the network overflow: these are to be left out first.
        """
        raw = looks(self.network, x)
        if not bool(raw.isfinite().all()) or (int(self.waiting) and self._looks_the_same(raw)):
            return self._remembered(raw)
        source = self._tried(x, self.normalization.source)
        in_use = source if self.normalization.is_source(self.present) else self._tried(x, self.present)
        part = torch.zeros(len(x), dtype=torch.long, device=raw.device)
        split = self._split(x, raw, part == 0, source, in_use)
        for number in range(1, PARTS + 1):
            if split.likeness < self.least or not split.strange(self.strange):
                break
            part[(part == 0) & ~split.anchor] = number
            split = self._split(x, raw, part == 0, source, in_use)
        left = part == 0
        statistics, jumped = self._judged(x[left], source.of(left), in_use.of(left))
        nothing = max(split.likeness, split.overall) < self.least <= float(self.alike) / SEEN
        if nothing:
            part[left] = PARTS
        parts = Looks.of(raw, part)
        out = in_use.out if statistics is self.present else source.out if statistics is source.statistics else None
        settled = not jumped and not nothing
        return _Found(statistics, Strangers(part > 0, parts.distinct), parts, out, settled, split.likeness)

    def _looks_the_same(self, raw: Tensor) -> bool:
        """Whether samples look as they did at the last search, in the mean."""
        last = self.kept.now
        points = described(raw, last.scale)
        chance = 2 * points.var(dim=0, correction=0).sum() / len(points)
        return bool((points.mean(dim=0) - last.center).square().sum() <= SAME * chance)

    def _split(self, x: Batch, raw: Tensor, left: Tensor, source: Candidate, in_use: Candidate) -> Split:
        """Part the samples that are left by their looks; if nobody is strange then, by how strangers looked before."""
        fresh = self._parted(x, raw, self._groups(described(raw, scale_of(raw)), left, source, in_use), source, in_use)
        strangers = left & self.kept.now.strange(raw)
        others = left & ~strangers
        if fresh.strange(self.strange) or not _large_enough(int(others.sum()), int(strangers.sum())):
            return fresh
        again = self._parted(x, raw, (others, strangers), source, in_use, held=True)
        return again if again.anchor is others and again.strange(self.strange) else fresh

    def _parted(
        self,
        x: Batch,
        raw: Tensor,
        groups: tuple[Tensor, ...],
        source: Candidate,
        in_use: Candidate,
        *,
        held: bool = False,
    ) -> Split:
        """Return two groups, or a single one, with how much alike they are."""
        if len(groups) == 1:
            own = self._measured(x[groups[0]])
            likeness = self._likeness(own, source.of(groups[0]), in_use.of(groups[0]))
            return Split(groups[0], likeness, likeness)
        measured = [(self._measured(x[group]), group) for group in groups if int(group.sum()) >= LEAST_GROUP]
        own, anchor = min(measured, key=lambda pair: pair[0].quarter)
        left = groups[0] | groups[1]
        rest = left & ~anchor
        few = 2 / int(rest.sum())
        likeness = self._likeness(own, source.of(anchor), in_use.of(anchor))
        with_groups = [self._tried(x[rest], own.statistics), *(one for one, group in measured if group is not anchor)]
        others = self._likeness(*with_groups, source.of(rest), in_use.of(rest)) + few
        by_own = (self._likeness(own), self._likeness(*with_groups) + few) if len(measured) == 2 else None
        doubt = float(Looks.of(raw[left], rest[left]).doubt)
        return Split(anchor, likeness, others, by_own, doubt, int(anchor.sum()) / int(left.sum()), held)

    def _groups(self, points: Tensor, left: Tensor, source: Candidate, in_use: Candidate) -> tuple[Tensor, ...]:
        """Return two groups of the samples that are left: the likeliest, or of others one that looks unknown.

        Where they cannot be parted, there is one group.
        """
        second = [left.masked_scatter(left, way) for way in two_groups(points[left])]
        pairs = [(way, left & ~way) for way in second]
        pairs = [pair for pair in pairs if _large_enough(*(int(group.sum()) for group in pair))]
        for pair in pairs:
            least, most = sorted(self._likeness(source.of(group), in_use.of(group)) for group in pair)
            if least + 2 / min(int(group.sum()) for group in pair) < self.strange * most:
                return pair
        return pairs[0] if pairs else (left,)

    def _judged(self, x: Batch, source: Candidate, in_use: Candidate) -> tuple[Tensor, bool]:
        """Return the statistics to use for samples that are left, and whether they were taken as they are."""
        still = in_use.statistics is source.statistics
        in_use = best = source if still else in_use
        for other in self._others(x, source):
            if other.better(source, by=TIE) and other.better(best, by=TIE):
                best = other
        best = best if best.better(source, by=TIE) else source
        if best is in_use or (best is not source and self._likeness(best) < self.least):
            return self.present, False
        jumped = best.better(in_use, by=self.jump)
        if jumped or still or best is source:
            return best.statistics, jumped
        return mixed(self.present, best.statistics, self.momentum), False

    def _others(self, x: Batch, source: Candidate) -> Iterator[Candidate]:
        """Yield statistics of samples, and those halfway to them unless they are clearly better than the source's."""
        pruned = self._pruned(x)
        yield pruned
        if not pruned.better(source, by=self.jump):
            yield self._tried(x, mixed(source.statistics, pruned.statistics, 0.5))

    def _pruned(self, x: Batch) -> Candidate:
        """Return the statistics of samples; if many of these score too high to be known, of those that do not."""
        tried = self._measured(x)
        if excess(tried.joint, self.of_source) <= MANY:
            return tried
        for _ in range(self.rounds):
            known = tried.joint <= max(self.usual, float(tried.joint.quantile(self.keep)))
            if bool(known.all()):
                break
            statistics, _ = self.normalization.measure(x[known])
            tried = self._tried(x, statistics)
        return tried

    def _likeness(self, *tried: Candidate) -> float:
        """Return how many of some samples score like the source's better half, with the statistics that suit best."""
        return max(2 * float((one.centered <= self.middle).to(one.centered.dtype).mean()) for one in tried)

    def _measured(self, x: Batch) -> Candidate:
        """Take the statistics of these samples, which are judged by them, too."""
        return self._candidate(*self.normalization.measure(x))

    def _tried(self, x: Batch, statistics: Tensor) -> Candidate:
        return self._candidate(statistics, self.normalization.run(x, statistics))

    def _candidate(self, statistics: Tensor, out: Forward) -> Candidate:
        """Judge statistics by what samples score with them and answer."""
        cosine, centered, joint = (SCORES[name](out, self.source) for name in ("cosine", "centered", "joint"))
        return Candidate(statistics, out, cosine, centered, joint, out.logits, self._looks_on_the_way(out))

    def _looks_on_the_way(self, out: Forward) -> Tensor | None:
        """Return how unlike the source's samples look, if statistics change that and not the answers."""
        mean, deviation = self.source.depth_mean, self.source.depth_std
        if self.normalization.changes_answers or out.depth is None or mean is None or deviation is None:
            return None
        return depth_score(out.depth, mean, deviation)
