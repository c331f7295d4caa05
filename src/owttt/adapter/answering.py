"""What an adapter says to a batch: method, detector and promoted classes together, outliers apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal, final, get_args

import torch
from torch import Tensor

from owttt.adapter.answers import answers, rejections, with_promoted, with_rejected
from owttt.adapter.guard import Log, implausible_features, implausible_inputs
from owttt.adapter.promoted import Promoted
from owttt.detector import Detector
from owttt.methods.base import Method
from owttt.network.inputs import tensors_of
from owttt.types import PREDICT_THEN_ADAPT, Forward, Order, Prediction, Verdict

Classifier = Literal["prototypes", "head"]
CLASSIFIERS: Final = get_args(Classifier)


class Outliers(Exception):  # noqa: N818  (no error: the rest of the batch is answered)
    """Some samples of a batch have features that are nothing like the source's."""

    def __init__(self, odd: Tensor) -> None:
        super().__init__()
        self.odd = odd


@final
class Answering:
    """Answers with the method as it is now; its parts are the adapter's. Nothing is learned, `judged` remembers scores.

    With `guard`, samples that are nothing like the source data are rejected, and told of in the log.
    """

    def __init__(
        self,
        method: Method,
        detector: Detector,
        promoted: Promoted,
        log: Log,
        *,
        order: Order,
        classifier: Classifier,
        classes: tuple[str, ...] | None,
        guard: bool,
    ) -> None:
        self.method = method
        self.detector = detector
        self.promoted = promoted
        self.log = log
        self.order: Order = order
        self.classifier = classifier
        self.classes = classes
        self.guard = guard

    @torch.no_grad()
    def answer(self, batch: Any) -> Prediction:
        """Predict samples; raises `Outliers` if some of them are."""
        out = self._forward(batch)
        scores = self.detector.scores(out, self.method.source)
        return self.prediction(out, self.detector.judge(scores, out))

    def judged(self, batch: Any, detector: Detector, *, graph: bool) -> tuple[Forward, Verdict]:
        """Run the network and a detector, and remember the scores; raises `Outliers` if some samples are."""
        with torch.set_grad_enabled(graph):
            out = self._forward(batch)
        scores = detector.scores(out, self.method.source)
        verdict = detector.judge(scores, out)
        detector.observe(scores, out.strangers)
        return out, verdict

    def prediction(self, out: Forward, verdict: Verdict) -> Prediction:
        """Answer a batch; a score of exactly τ is unknown in the paper, and known in the authors' program."""
        paper = self.order == PREDICT_THEN_ADAPT
        unknown = verdict.unknown if paper else verdict.scores > verdict.threshold
        if verdict.strange is not None:
            unknown = unknown | verdict.strange
        prototypes = None if self.classifier == "head" else self.method.source.prototypes
        answer = answers(out, verdict, unknown, prototypes, self.classes)
        if not len(self.promoted):
            return answer
        names = None if self.classes is None else (*self.classes, *self.promoted.names)
        nearest = out.cosines(self.method.source.prototypes).amax(dim=1)
        return with_promoted(answer, self.promoted.ahead(out.features, nearest), names)

    def claims(self, out: Forward) -> Tensor:
        """Return which promoted class claims each sample, -1 where none does."""
        return self.promoted.claims(out.features, out.cosines(self.method.source.prototypes).amax(dim=1))

    def without_outliers(self, batch: Any, answered: Callable[[Any], Prediction]) -> Prediction:
        """Answer a batch, samples that are nothing like the source data apart: they are rejected and teach nothing."""
        odd = self._odd_inputs(batch)
        while not bool(odd.all()):
            try:
                return self._joined(answered(batch[~odd] if bool(odd.any()) else batch), odd)
            except Outliers as found:
                odd = odd.masked_scatter(~odd, found.odd)
        return self._joined(None, odd)

    def features(self, batch: Any) -> Tensor:
        """Return the features of samples.

        Raises:
            ValueError: Some of them are nothing like the source data.
        """
        odd = self._odd_inputs(batch)
        try:
            features = self._forward(batch).features
        except Outliers as found:
            odd = odd | found.odd
        if bool(odd.any()):
            raise ValueError(
                f"{int(odd.sum())} of {len(odd)} samples are nothing like the source data; leave them out "
                "(`predict` says which in `outliers`)."
            )
        return features

    def _forward(self, batch: Any) -> Forward:
        """Run the network; samples whose features are nothing like the source's are told apart."""
        out: Forward = self.method(batch)
        if self.guard and bool((odd := implausible_features(out.features, self.method.source)).any()):
            raise Outliers(self._by_themselves(batch, odd))
        return out

    @torch.no_grad()
    def _by_themselves(self, batch: Any, odd: Tensor) -> Tensor:
        """Return which samples are odd with the network's own statistics, if any are.

        With those of the batch, one of them spoils the features of all.
        """
        if int(odd.sum()) < 2:
            return odd
        alone = implausible_features(self.method.network(batch).features, self.method.source)
        return alone if bool(alone.any()) else odd

    def _odd_inputs(self, batch: Any) -> Tensor:
        """Return which samples lie far outside what the source data was."""
        first = next(iter(tensors_of(batch).values()))
        if not self.guard or getattr(self.method.network.model, "any_scale", False):
            return torch.zeros(len(batch), dtype=torch.bool, device=first.device)
        return implausible_inputs(first, self.method.source)

    def _joined(self, answer: Prediction | None, odd: Tensor) -> Prediction:
        """Return the answers of a batch with the outliers in their places."""
        if answer is not None and not bool(odd.any()):
            return replace(answer, outliers=odd)
        self.log.tell("outliers", f"{int(odd.sum())} of {len(odd)} samples are nothing like the source data")
        window, source = self.detector.window.values, self.method.source
        return with_rejected(answer, odd, rejections(len(odd), window, source, len(self.promoted), self.classes))
