"""Moments of the source features in one pass, whatever the batches: per class, of all, and how batches differ."""

from __future__ import annotations

import torch
from torch import Tensor

from owttt.functional import covariance, widest


class ClassMoments:
    """Counts, means and covariances of each class and of all, accumulated in double precision.

    `counts` are the samples of each class so far.

    Sums are taken about the mean of the first batch, so that variances do not drown in a large common offset.
    """

    def __init__(self, num_classes: int, *, diagonal: bool) -> None:
        self.num_classes = num_classes
        self.diagonal = diagonal
        self._origin: Tensor | None = None

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Count a batch of features `(B, D)` with labels `(B,)`."""
        exact = features.to(widest(features.device))
        if self._origin is None:
            self._start(exact)
        assert self._origin is not None
        exact = exact - self._origin
        self.counts += torch.bincount(labels, minlength=self.num_classes)
        self._sums.index_add_(0, labels, exact)
        self._squares += exact.T @ exact
        if self.diagonal:
            self._class_squares.index_add_(0, labels, exact.square())
            return
        for label in torch.unique(labels).tolist():
            members = exact[labels == label]
            self._class_squares[label] += members.T @ members

    def _start(self, features: Tensor) -> None:
        size = features.shape[1]
        self._origin = features.mean(dim=0)
        self.counts = torch.zeros(self.num_classes, dtype=torch.long, device=features.device)
        self._sums = features.new_zeros(self.num_classes, size)
        self._squares = features.new_zeros(size, size)
        shape = (self.num_classes, size) if self.diagonal else (self.num_classes, size, size)
        self._class_squares = features.new_zeros(shape)

    def result(self) -> dict[str, Tensor]:
        """Return class means and covariances, and mean and covariance of all; needs a sample of every class."""
        assert self._origin is not None
        offsets = self._sums / self.counts[:, None]
        offset = self._sums.sum(dim=0) / self.counts.sum()
        if self.diagonal:
            class_covariances = self._class_squares / self.counts[:, None] - offsets.square()
        else:
            outer = offsets[:, :, None] * offsets[:, None, :]
            class_covariances = self._class_squares / self.counts[:, None, None] - outer
        return {
            "class_means": self._origin + offsets,
            "class_covariances": class_covariances,
            "mean": self._origin + offset,
            "covariance": self._squares / self.counts.sum() - torch.outer(offset, offset),
        }


class BatchSpread:
    """How much mean and covariance differ between two source batches of `size` samples (the unit of TTT++'s losses).

    The mean over all pairs of m batches of ‖v_i - v_j‖² is 2/(m-1)·(Σ‖v_i‖² - ‖Σv_i‖²/m): one pass suffices. Samples
    are regrouped, so the loader's batch size does not matter; a source too small for two batches is cut in half, and
    `result` says how large the batches were.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._waiting: list[Tensor] = []
        self._batches = 0
        self._sums: list[Tensor] = []
        self._squares: list[Tensor] = []

    def add(self, features: Tensor) -> None:
        """Count a batch of features `(B, D)`."""
        self._waiting.append(features.to(widest(features.device)))
        while sum(map(len, self._waiting)) >= 2 * self.size:
            joined = torch.cat(self._waiting)
            self._close(joined[: self.size])
            self._waiting = [joined[self.size :]]

    def _close(self, batch: Tensor) -> None:
        values = (batch.mean(dim=0), covariance(batch))
        if not self._batches:
            self._sums = [torch.zeros_like(value) for value in values]
            self._squares = [value.new_zeros(()) for value in values]
        for total, square, value in zip(self._sums, self._squares, values, strict=True):
            total.add_(value)
            square.add_(value.square().sum())
        self._batches += 1

    def result(self) -> dict[str, Tensor]:
        """Return the discrepancies of mean, `mean (μ_i - μ_j)²`, and covariance, `‖C_i - C_j‖²/(4D²)`, and the size."""
        rest = torch.cat(self._waiting)
        parts = (rest[: self.size],) if self._batches else rest.chunk(2)
        for part in parts:
            self._close(part)
        factor = 2 / max(self._batches - 1, 1)
        mean, cov = (
            factor * (square - total.square().sum() / self._batches)
            for total, square in zip(self._sums, self._squares, strict=True)
        )
        dimension = rest.shape[1]
        return {
            "mean_spread": mean / dimension,
            "covariance_spread": cov / (4 * dimension**2),
            "spread_samples": rest.new_tensor(len(parts[0])),
        }


class InputMoments:
    """Range of the inputs, and mean and deviation of each channel."""

    def __init__(self) -> None:
        self._low, self._high = torch.inf, -torch.inf
        self._count = 0
        self._sum: Tensor | None = None
        self._squares: Tensor | None = None

    def add(self, x: Tensor) -> None:
        """Count a batch."""
        values = channels(x).to(widest(x.device))
        self._low = min(self._low, float(values.min()))
        self._high = max(self._high, float(values.max()))
        self._count += len(values) * values.shape[2]
        total, squares = values.sum(dim=(0, 2)), values.square().sum(dim=(0, 2))
        self._sum = total if self._sum is None else self._sum + total
        self._squares = squares if self._squares is None else self._squares + squares

    def result(self) -> dict[str, Tensor]:
        """Return what was measured, by name."""
        assert self._sum is not None
        assert self._squares is not None
        mean = self._sum / self._count
        variance = (self._squares / self._count - mean.square()).clamp_min(0)
        bounds = mean.new_tensor([self._low, self._high])
        return {"input_range": bounds, "input_mean": mean, "input_std": variance.sqrt()}


def channels(x: Tensor) -> Tensor:
    """Return samples as `(B, C, values)`: channels of images, coordinates of clouds, one channel of anything else."""
    if x.dim() == 4:
        return x.flatten(2)
    return x.transpose(1, 2) if x.dim() == 3 else x.reshape(len(x), 1, -1)
