"""Open-world metrics of a stream: `update` with each batch, `compute` at any time.

acc_s                   share of known samples given their class (rejecting one is an error)
acc_n                   share of unknown samples rejected
acc_h                   harmonic mean of acc_s and acc_n (the paper; some works mean accuracy and AUROC instead)
acc_closed              accuracy on known samples, rejection ignored
auroc                   of the score, unknown as the positive class
fpr95_unknown_positive  share of known samples rejected at the threshold that rejects 95 % of the unknown (OpenOOD)
fpr95_known_positive    share of unknown samples accepted at the threshold that accepts 95 % of the known (UniEnt)
oscr                    area under the open-set classification curve
acc_h_auroc             harmonic mean of acc_closed and auroc (STAMP)
ece                     calibration error of softmax(logits) on known samples, 15 bins
n_known, n_unknown      how many samples of either kind were seen

What a stream cannot tell is NaN: acc_n, acc_h and the score's metrics need unknown samples.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from owttt.functional import auroc, expected_calibration_error, fpr_at_tpr, harmonic_mean, oscr
from owttt.types import UNKNOWN, Prediction


@final
class OpenWorldMetrics:
    """Accumulates predictions and true labels; any label outside 0 … K-1 means unknown."""

    def __init__(self, num_classes: int) -> None:
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}.")
        self.num_classes = num_classes
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._rows: list[Tensor] = []

    def update(self, prediction: Prediction, y: Tensor) -> None:
        """Count a batch: its prediction and its true labels `(B,)`."""
        if y.shape != prediction.label.shape:
            raise ValueError(f"Expected labels of shape {tuple(prediction.label.shape)}, got {tuple(y.shape)}.")
        if prediction.logits.shape[1] != self.num_classes:
            raise ValueError(f"Expected logits of {self.num_classes} classes, got {prediction.logits.shape[1]}.")
        confidence, closed = prediction.logits.softmax(dim=1).max(dim=1)
        columns = (y, prediction.label, closed, prediction.score, confidence)
        self._rows.append(torch.stack([column.detach().cpu().double() for column in columns]))

    def compute(self) -> dict[str, float]:
        """Return all metrics of what was seen so far."""
        rows = torch.cat(self._rows, dim=1) if self._rows else torch.zeros(5, 0, dtype=torch.double)
        y, label, closed, score, confidence = rows
        unknown = (y < 0) | (y >= self.num_classes)
        known = ~unknown
        acc_s = (label == y)[known].double().mean()
        acc_n = (label == UNKNOWN)[unknown].double().mean()
        correct = closed == y
        acc_closed = correct[known].double().mean()
        area = auroc(score, unknown)
        values = {
            "acc_s": acc_s,
            "acc_n": acc_n,
            "acc_h": harmonic_mean(acc_s, acc_n),
            "acc_closed": acc_closed,
            "auroc": area,
            "fpr95_unknown_positive": fpr_at_tpr(score, unknown),
            "fpr95_known_positive": fpr_at_tpr(-score, known),
            "oscr": oscr(score, correct, unknown),
            "acc_h_auroc": harmonic_mean(acc_closed, area),
            "ece": expected_calibration_error(confidence[known], correct[known]),
            "n_known": known.sum(),
            "n_unknown": unknown.sum(),
        }
        return {name: float(value) for name, value in values.items()}
