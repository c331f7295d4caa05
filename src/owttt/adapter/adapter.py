"""The product: a classifier that adapts itself when it is called, and says "unknown"."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, final, get_args

import torch
from torch import Tensor, nn

from owttt._utils.allocator import give_back_freed_memory
from owttt._utils.background import Background
from owttt._utils.locks import Lock
from owttt._utils.queue import Queue
from owttt.adapter import saving
from owttt.adapter.answering import Answering, Classifier, Outliers
from owttt.adapter.answers import part_of
from owttt.adapter.batches import taken
from owttt.adapter.guard import Event, Log, implausible_features, implausible_state
from owttt.adapter.promoted import Promoted
from owttt.adapter.rails import Rails, pace
from owttt.adapter.transaction import States
from owttt.adapter.tries import Tries
from owttt.detector import Detector, Score, Threshold
from owttt.functional import autocasting, effective_classes
from owttt.methods.base import Method
from owttt.types import ADAPT_THEN_PREDICT, PREDICT_THEN_ADAPT, Forward, Order, Prediction, Verdict

NETWORK: Final = "method.network."
PROMOTED: Final = "promoted."
"""What the names of the network's tensors begin with, in an adapter's state, and those of promoted classes."""
TOGETHER: Final = 256
"""Samples that a promoted class is run through the network in."""
TIDY: Final = 2048
"""Samples after which freed memory is given back."""
ORDERS: Final = get_args(Order)


@final
class Adapter(nn.Module):
    """method × score × threshold × order. Made by `wrap`; called with a batch, it answers with a `Prediction`.

    In the paper's order a batch is predicted and judged once, and adapted to after. In the authors' order it is judged,
    adapted to, and predicted with the new weights, with a window of scores for either pass.

    A call is a transaction. Bad input is refused before anything changes; an error or an interruption leaves everything
    as it was before the batch; an update that is not finite or beyond reason is taken back, and the batch is answered
    without it (`Prediction.learned`). Samples that are nothing like the source data are rejected and never learned from
    (`Prediction.outliers`). `events` tells of both. Several threads may share an adapter: calls wait for each other.
    """

    def __init__(
        self,
        method: Method,
        *,
        score: Score,
        threshold: Threshold,
        window: int,
        order: Order,
        classifier: Classifier,
        classes: tuple[str, ...] | None = None,
        guard: bool = True,
        rails: bool = True,
    ) -> None:
        super().__init__()
        self.method = method
        prototypes = method.source.prototypes
        self.detector = Detector(score, threshold, window, like=prototypes)
        if order == ADAPT_THEN_PREDICT:
            self.training_detector = Detector(score, threshold, window, like=prototypes)
        self.recent = Queue(window, (), prototypes)
        self.promoted = Promoted(prototypes)
        self.rails = Rails(method) if rails and method.adapts else None
        method.on_rails = rails
        self._source = method.source.fingerprint
        self._score = saving.name_of(score, method.source)
        self._states = States(self, method.optimizer)
        self._log = Log()
        self._answering = Answering(
            method,
            self.detector,
            self.promoted,
            self._log,
            order=order,
            classifier=classifier,
            classes=classes,
            guard=guard,
        )
        self._lock = Lock()
        self._background = Background()
        self._tries = Tries(self)

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Prediction:
        """Predict a batch and adapt to it, in the adapter's order.

        Args:
            x: A batch like those of the source data: a tensor, or named tensors (labels among them are not looked at).

        Returns:
            The answer for every sample.

        Raises:
            ValueError: The batch is not like the source data; nothing has changed then.
            TypeError: Likewise, of another type.
        """
        with self._turn(), torch.inference_mode(False), torch.enable_grad():
            batch, mine = taken(x, self.method.network, self.method.source)
            if self.order == PREDICT_THEN_ADAPT:
                with self._states.undone_on_error() as before:
                    answer, learn = self._begun(batch, before)
                    return replace(part_of(answer, mine), learned=learn())
            answer = self._answering.without_outliers(batch, self._adapted_then_predicted)
            self._count(len(answer.labels))
            return part_of(answer, mine)

    def predict_then_learn(self, x: Tensor | Mapping[str, Tensor]) -> Prediction:
        """Do what a call does, and return as soon as the batch is answered; it is learned from on another thread.

        Whatever is done with the adapter next waits until that is finished (`events` and `config` do not), so that
        results are those of calls, bit for bit. An error while learning leaves the adapter as it was before the batch,
        and is raised by the next call, or by `settle`.

        Returns:
            The answer; its `learned` is not known yet, `events` tells of updates that were taken back.

        Raises:
            ValueError: The adapter's order is "adapt-then-predict", or the batch is not like the source data.
            TypeError: The batch is of another type.
        """
        if self.order != PREDICT_THEN_ADAPT:
            raise ValueError(f"An answer that comes before learning needs the order {PREDICT_THEN_ADAPT!r}.")
        with self._turn(), torch.inference_mode(False), torch.enable_grad():
            batch, mine = taken(x, self.method.network, self.method.source)
            batch = batch.clone()
            with self._states.undone_on_error() as before:
                answer, learn = self._begun(batch, before)
                try:
                    self._background.run(partial(_learning, learn, autocasting()))
                    return part_of(answer, mine)
                except BaseException:
                    with suppress(Exception):
                        self._background.wait()
                    raise

    def settle(self) -> None:
        """Wait until what `predict_then_learn` began is learned; raises what went wrong with it."""
        with self._turn():
            return

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy, once what it was doing is finished."""
        with self._turn(), torch.inference_mode(False):
            memo[id(self)] = made = type(self).__new__(type(self))
            made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled, once what it was doing is finished; other threads must not call it meanwhile."""
        with self._turn():
            return dict(self.__dict__)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the tensors of the state as any module does, once what it was doing is finished; see also `save`."""
        with self._at_rest():
            return super().state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Take over tensors as any module does, once what it was doing is finished; see also `restore`."""
        with self._turn():
            return super().load_state_dict(*args, **kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert all tensors, once what it was doing is finished."""
        with self._turn():
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the adapter, once what it was doing is finished; raises what went wrong with that."""
        if self._background.is_here:
            raise RuntimeError("The adapter is learning; what runs inside of that cannot use it (but `watch` it).")
        with self._lock, self._states.without_leftovers():
            self._background.wait()
            yield

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        """Hold the adapter to read it, once what it was doing is finished; what went wrong with that is raised later.

        Whoever learns may read, and has it already.
        """
        if self._background.is_here:
            yield
            return
        with self._lock:
            self._background.finish()
            yield

    @torch.no_grad()
    def predict(self, x: Tensor | Mapping[str, Tensor]) -> Prediction:
        """Predict a batch with the model as it is now; nothing is learned or remembered (`events` tells outliers)."""
        with self._turn():
            batch, mine = taken(x, self.method.network, self.method.source)
            return part_of(self._answering.without_outliers(batch, self._answering.answer), mine)

    @torch.inference_mode(False)
    @torch.no_grad()
    def promote(self, samples: Tensor | Mapping[str, Tensor], name: str) -> None:
        """Make a class of samples that were rejected: from now on answers name it (see `adapter.promoted`).

        Args:
            samples: At least five of them, as batches come; how they look to the network as it is now is remembered.
            name: What it is called; its label is K for the first promoted class, K + 1 for the next, and so on.

        Raises:
            ValueError: There are too few samples, some are nothing like the source data, or the name is one of a class
                already.
            TypeError: The name is no text.
        """
        with self._turn(), self._states.undone_on_error():
            self._agree_on(name)
            if not isinstance(name, str):
                raise TypeError(f"The name of a class is text, got {type(name).__name__}.")
            if name in (self.classes or ()):
                raise ValueError(f"{name!r} is the name of a class that the model was trained on.")
            batch, _ = taken(samples, self.method.network, self.method.source)
            parts = [batch[start : start + TOGETHER] for start in range(0, len(batch), TOGETHER)]
            self.promoted.add(torch.cat([self._answering.features(part) for part in parts]), name)
            self._states.begin_with(PROMOTED)

    @torch.inference_mode(False)
    def demote(self, name: str) -> None:
        """Take a promoted class back; the labels of those promoted after it move up by one."""
        with self._turn():
            self._agree_on(name)
            self.promoted.remove(name)
            self._states.begin_with(PROMOTED)

    def _agree_on(self, name: str) -> None:
        """Raise if processes that share a stream mean different classes."""
        if self.method.network.ranks is not None:
            self.method.network.ranks.unanimous(name, "The name of a promoted class")

    @torch.inference_mode(False)
    def reset(self) -> None:
        """Put everything back as it was before the first batch; promoted classes stay."""
        with self._turn():
            self._states.begin_anew()
            self._log.begin_anew()
            self._tries.forget()

    @property
    def order(self) -> Order:
        """Whether a batch is predicted before it is learned from, or after."""
        return self._answering.order

    @property
    def classifier(self) -> Classifier:
        """Who decides on the class: the nearest prototype, or the model's own head."""
        return self._answering.classifier

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes that the model was trained on, if it was told."""
        return self._answering.classes

    @property
    def guard(self) -> bool:
        """Whether outliers are left out, and implausible updates taken back."""
        return self._answering.guard

    @property
    def events(self) -> list[Event]:
        """What the guard did lately, oldest first: samples left out, updates taken back."""
        return list(self._log.events)

    def watch(self) -> dict[str, float]:
        """Return the numbers worth watching: the method's, a sign of collapse, and how often the guard did something.

        `classes` is the effective number of known classes among the last answers, rejected ones included: exp(H) of
        their shares, up to K where all are as frequent. A network that collapses answers with one or two classes,
        whatever it is shown; so does one whose stream has only these. It waits for calls of other threads, and until
        what `predict_then_learn` began is learned.
        """
        with self._at_rest():
            effective = effective_classes(self.recent.values.long(), self.method.source.num_classes)
            return {"classes": round(effective, 2), "events": self._log.told, **self.method.watch()}

    def save(self, path: str | Path) -> None:
        """Write the complete state (weights, optimizer, windows, pool, Gaussians) to a safetensors file, atomically.

        Of several processes that share a stream the first one writes; any number of them may restore it.

        Raises:
            FloatingPointError: A tensor of the state is not finite; nothing is written.
        """
        with self._turn():
            write = saving.writer(path, self._states.now, self.config)
            ranks = self.method.network.ranks
            if ranks is None:
                write()
            else:
                ranks.once(write)

    @torch.inference_mode(False)
    def restore(self, path: str | Path) -> Self:
        """Resume from a file that `save` wrote, of an adapter wrapped with the same model, source and options."""
        tensors = saving.read(path, self.config, self._states.initial)
        with self._turn():
            self._states.resume(tensors, str(path))
            self._states.begin_with(PROMOTED)
            self._tries.forget()
        return self

    @property
    def config(self) -> dict[str, Any]:
        """What this adapter does, in full, as plain JSON values: record it with every result."""
        return {
            "method": self.method.name,
            "options": self.method.options(),
            "order": self.order,
            "score": self._score,
            "threshold": saving.name_of(self.detector.threshold, self.method.source),
            "window": self.detector.window.capacity,
            "classifier": self.classifier,
            "guard": self.guard,
            "rails": self.method.on_rails,
            "features": self.method.source.info.feature_point,
            "class_covariance": "diagonal" if self.method.source.diagonal else "full",
            "source": self._source,
        }

    def extra_repr(self) -> str:
        """Say what was chosen."""
        return ", ".join(f"{name}={value!r}" for name, value in self.config.items() if name != "source")

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: the method decides when a layer uses batch statistics."""
        del mode
        return super().train(False)

    def _count(self, samples: int) -> None:
        """Count a batch; now and then give back what the allocator holds of those before."""
        before = self._log.samples // TIDY
        self._log.batches += 1
        self._log.samples += samples
        if self._log.samples // TIDY > before:
            give_back_freed_memory()

    def _begun(self, batch: Any, before: dict[str, Tensor]) -> tuple[Prediction, Callable[[], bool]]:
        """Answer a batch; return what is left to do: learning from it, which says whether anything was learned."""
        left: list[Callable[[], bool]] = []

        def answered(plausible: Any) -> Prediction:
            out, verdict = self._answering.judged(plausible, self.detector, graph=self.method.backpropagates)
            left.append(partial(self._learned, before, plausible, out, verdict))
            return self._remembered(self._answering.prediction(out, verdict))

        answer = self._answering.without_outliers(batch, answered)

        def learn() -> bool:
            learned = answer.learned and all(step() for step in left)
            self._count(len(answer.labels))
            return learned

        return answer, learn

    def _learned(self, before: dict[str, Tensor], batch: Any, out: Forward, verdict: Verdict) -> bool:
        """Adapt to a batch that was answered, and say whether the new state was kept."""
        with self._states.undone_on_error(before), self._tries.attempt(batch):
            self._adapt(batch, out, verdict)
            wrong = self._implausible()
            collapsed = not wrong and self._collapsed(batch, out)
        if wrong:
            self._take_back(before, batch, wrong)
        return not wrong and not collapsed

    def _adapted_then_predicted(self, batch: Any) -> Prediction:
        """Adapt to a batch, then answer it with the new weights; with the old ones if those are not plausible."""
        if not self.method.adapts:
            with self._states.undone_on_error():
                return self._remembered(
                    self._answering.prediction(*self._answering.judged(batch, self.detector, graph=False))
                )
        with self._states.undone_on_error() as before:
            judged = self._answering.judged(batch, self.training_detector, graph=self.method.backpropagates)
            with self._tries.attempt(batch):
                self._adapt(batch, *judged)
            wrong = self._implausible()
            if not wrong:
                try:
                    out, verdict = self._answering.judged(batch, self.detector, graph=False)
                    answer = self._remembered(self._answering.prediction(out, verdict))
                    return replace(answer, learned=not self._collapsed(batch, out))
                except Outliers:
                    wrong = "features after the update"
        self._take_back(before, batch, wrong)
        return replace(self._answering.answer(batch), learned=False)

    def _adapt(self, batch: Any, out: Forward, verdict: Verdict) -> None:
        """Let the method learn; on rails from enough samples at a time, and in steps that fit their number.

        Samples of a promoted class are unknown to the network, and are learned from as such.
        """
        if self.rails is not None:
            enough = self.rails.enough(batch)
            if enough is None:
                return
            if enough is not batch:
                with torch.set_grad_enabled(self.method.backpropagates):
                    out = self.method(enough)
                if bool(implausible_features(out.features, self.method.source).any()):
                    self._log.tell("outliers", f"the last {len(enough)} samples, gathered, give features beyond reason")
                    return
                detector = self.detector if self.order == PREDICT_THEN_ADAPT else self.training_detector
                scores = detector.scores(out, self.method.source)
                batch, verdict = enough, detector.judge(scores, out, seen=True)
            self.method.pace = pace(len(batch))
        self.method.adapt(batch, out, replace(verdict, known=verdict.known & (self._answering.claims(out) < 0)))

    def _collapsed(self, batch: Any, out: Forward) -> bool:
        """Whether answers have lost their classes; everything is as in the beginning then."""
        if self.rails is None:
            return False
        closed = out.cosines(self.method.source.prototypes).argmax(dim=1)
        wrong = self.rails.collapsed(batch, closed, self._original_answers)
        if wrong:
            self._states.go_back(self._states.initial)
            self._log.tell("collapsed", f"{wrong}; adaptation began anew")
        return bool(wrong)

    @torch.no_grad()
    def _original_answers(self, batch: Any) -> Tensor:
        """Return what the model as it came answers."""
        network = self.method.network
        first = self._states.initial
        weights = {name: first[NETWORK + name].to(value) for name, value in network.state_dict().items()}
        out: Forward = torch.func.functional_call(network, weights, (batch,), tie_weights=False)
        return out.cosines(self.method.source.prototypes).argmax(dim=1)

    def _take_back(self, before: dict[str, Tensor], batch: Any, wrong: str) -> None:
        """Undo an update that led to something implausible; samples that were gathered for it are not tried again."""
        self._states.go_back(before)
        self._tries.drop(batch)
        self._log.tell("rolled back", f"{wrong} not finite, or grown beyond reason")

    def _implausible(self) -> str:
        """Return the name of a tensor that must not be kept, or an empty one."""
        if not self.guard or not self.method.adapts:
            return ""
        return implausible_state(self._states.now, self._states.initial, NETWORK)

    def _remembered(self, prediction: Prediction) -> Prediction:
        """Remember which classes were seen, for `watch`."""
        self.recent.push(prediction.closed)
        return prediction


def _learning(learn: Callable[[], bool], modes: AbstractContextManager[None]) -> None:
    """Learn on a thread that does not know the modes of the one it was begun on."""
    with torch.inference_mode(False), torch.enable_grad(), modes:
        learn()
