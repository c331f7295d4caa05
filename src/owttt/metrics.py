"""Open-world metrics of a stream: `update` with each batch, `compute` at any time.

acc_s                   share of known samples given their class (rejecting one is an error)
acc_n                   share of unknown samples rejected
acc_h                   harmonic mean of acc_s and acc_n (the paper; some works mean accuracy and AUROC instead)
acc_closed              accuracy on known samples, rejection ignored
known_rejected          share of known samples rejected: what the threshold costs ordinary traffic
auroc                   of the score, unknown as the positive class
fpr95_unknown_positive  share of known samples rejected at the threshold that rejects 95 % of the unknown (OpenOOD)
fpr95_known_positive    share of unknown samples accepted at the threshold that accepts 95 % of the known (UniEnt)
oscr                    area under the open-set classification curve
acc_h_auroc             harmonic mean of acc_closed and auroc (STAMP)
ece                     calibration error of softmax(logits) on known samples, 15 bins
n_known, n_unknown      how many samples of either kind were seen

A promoted class is none of the known ones: to answer with it is to reject, as far as these metrics go.
What a stream cannot tell is NaN: acc_n, acc_h and the score's metrics need unknown samples.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, Self, final

import torch
from torch import Tensor

from owttt.functional import auroc, expected_calibration_error, fpr_at_tpr, harmonic_mean, oscr
from owttt.types import Prediction

CAPACITY: Final = 200_000
"""Samples that are remembered for the metrics of scores (AUROC and the like): 40 bytes each."""
_COLUMNS: Final = 5
"""True label, predicted label, best known class, score, confidence."""


@final
class OpenWorldMetrics:
    """Accumulates predictions and true labels; any label outside 0 … K-1 means unknown.

    Accuracies are counted over the whole stream. What needs all scores at once (AUROC, FPR, OSCR, calibration) looks at
    the last 200,000 samples, so that memory is bounded. With a `window`, everything looks at the last `window` samples.

    Args:
        num_classes: The number of known classes, K.
        window: How many of the last samples count; None for the whole stream.

    Example:
        >>> import torch
        >>> metrics = OpenWorldMetrics(num_classes=2)
        >>> metrics.update(torch.tensor([0, 1, -1]), torch.tensor([0, 0, 7]))
        >>> metrics.compute()["acc_s"], metrics.compute()["acc_n"]
        (0.5, 1.0)
    """

    def __init__(self, num_classes: int, *, window: int | None = None) -> None:
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}.")
        if window is not None and window < 1:
            raise ValueError(f"window must be at least 1 sample, or None for all, got {window}.")
        self.num_classes = num_classes
        self.window = window
        self.device = torch.device("cpu")
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._rows: list[Tensor] = []
        self._remembered = 0
        self._counts = _Counts()

    def to(self, device: torch.device | str) -> Self:
        """Move what is remembered."""
        self.device = torch.device(device)
        self._rows = [rows.to(self.device) for rows in self._rows]
        return self

    def update(self, preds: Prediction | Tensor, target: Tensor) -> None:
        """Count a batch.

        Args:
            preds: A `Prediction`, or predicted labels `(B,)` with `UNKNOWN` for rejected samples; labels alone leave
                the metrics that need scores or the best known class at NaN.
            target: True labels `(B,)`; any outside 0 … K-1 counts as unknown.

        Raises:
            ValueError: Shapes do not fit.
        """
        rows = self._columns(preds, target)
        self._rows.append(rows)
        self._remembered += rows.shape[1]
        self._counts = self._counts.plus(_count(rows, self.num_classes))
        self._forget()

    def forward(self, preds: Prediction | Tensor, target: Tensor) -> dict[str, float]:
        """Count a batch and return the metrics of that batch alone."""
        alone = OpenWorldMetrics(self.num_classes).to(self.device)
        alone.update(preds, target)
        self.update(preds, target)
        return alone.compute()

    __call__ = forward

    def accuracies(self) -> dict[str, float]:
        """Return the metrics that only count: cheap, whatever was seen."""
        return self._counts.rates()

    def compute(self) -> dict[str, float]:
        """Return all metrics of what was seen so far."""
        rows = torch.cat(self._rows, dim=1) if self._rows else torch.zeros(_COLUMNS, 0, dtype=torch.double)
        y, _, closed, scores, confidence = rows
        unknown = (y < 0) | (y >= self.num_classes)
        known, correct = ~unknown, closed == y
        counted = self._counts.rates()
        area = auroc(scores, unknown)
        ranked = {
            "auroc": area,
            "fpr95_unknown_positive": fpr_at_tpr(scores, unknown),
            "fpr95_known_positive": fpr_at_tpr(-scores, known),
            "oscr": oscr(scores, correct, unknown),
            "acc_h_auroc": harmonic_mean(area.new_tensor(counted["acc_closed"]), area),
            "ece": expected_calibration_error(confidence[known], correct[known]),
        }
        scored = not bool(scores.isnan().any())
        return {**counted, **{name: float(value) if scored else math.nan for name, value in ranked.items()}}

    def _columns(self, preds: Prediction | Tensor, target: Tensor) -> Tensor:
        labels = preds.labels if isinstance(preds, Prediction) else preds
        if target.shape != labels.shape or labels.dim() != 1:
            raise ValueError(f"Expected labels of shape {tuple(labels.shape)}, got {tuple(target.shape)}.")
        columns: tuple[Any, ...]
        if isinstance(preds, Prediction):
            known, given = self.num_classes, preds.logits.shape[1]
            if given < known or bool((preds.closed >= known).any()):
                raise ValueError(f"Expected logits of {known} classes, got {given}.")
            confidence, closed = preds.logits[:, :known].softmax(dim=1).max(dim=1)
            columns = (target, labels, closed, preds.scores, confidence)
        else:
            nothing = torch.full(labels.shape, torch.nan)
            columns = (target, labels, nothing, nothing, nothing)
        return torch.stack([column.detach().to(self.device, torch.double) for column in columns])

    def _forget(self) -> None:
        """Drop the oldest rows beyond what is to be remembered; those of a window are no longer counted either."""
        most = CAPACITY if self.window is None else self.window
        while self._remembered > most:
            oldest = self._rows[0]
            dropped = oldest[:, : min(oldest.shape[1], self._remembered - most)]
            if self.window is not None:
                self._counts = self._counts.plus(_count(dropped, self.num_classes), times=-1)
            self._remembered -= dropped.shape[1]
            if dropped.shape[1] == oldest.shape[1]:
                self._rows.pop(0)
            else:
                self._rows[0] = oldest[:, dropped.shape[1] :]


class _Counts(NamedTuple):
    """How many samples there were of which kind, and how they fared."""

    known: float = 0
    right: float = 0
    rejected: float = 0
    closed: float = 0
    unsaid: float = 0
    """Known samples whose best known class was not told."""
    unknown: float = 0
    caught: float = 0

    def plus(self, other: _Counts, times: int = 1) -> _Counts:
        """Return the sum with another count, or with `times=-1` the difference."""
        return _Counts(*(a + times * b for a, b in zip(self, other, strict=True)))

    def rates(self) -> dict[str, float]:
        """Return the shares."""
        acc_s, acc_n = _share(self.right, self.known), _share(self.caught, self.unknown)
        return {
            "acc_s": acc_s,
            "acc_n": acc_n,
            "acc_h": float(harmonic_mean(torch.tensor(acc_s).double(), torch.tensor(acc_n).double())),
            "acc_closed": math.nan if self.unsaid else _share(self.closed, self.known),
            "known_rejected": _share(self.rejected, self.known),
            "n_known": self.known,
            "n_unknown": self.unknown,
        }


def _count(rows: Tensor, num_classes: int) -> _Counts:
    y, labels, closed = rows[:3]
    unknown, rejected = ((label < 0) | (label >= num_classes) for label in (y, labels))
    known = ~unknown
    return _Counts(
        known=float(known.sum()),
        right=float(((labels == y) & known).sum()),
        rejected=float((rejected & known).sum()),
        closed=float(((closed == y) & known).sum()),
        unsaid=float((closed.isnan() & known).sum()),
        unknown=float(unknown.sum()),
        caught=float((rejected & unknown).sum()),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
