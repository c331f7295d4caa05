"""One stream on several processes: every pass of the network is shared out, everything else is done by all.

Each rank is given a part of a batch. Inputs are exchanged at once, so that all ranks hold the whole batch; from then on

    pass        n samples, whichever were chosen, are cut in parts of n/R rows. A rank runs its own and all put features
                and logits together again. So work stays balanced however unevenly known samples are spread.
    statistics  of a batch, where a layer normalizes with them, are those of all parts: sums over ranks, forward and
                backward.
    loss        is computed by every rank on the whole batch, the same everywhere. A rank's gradient is that of its own
                rows; before a step gradients are added up.

Scores, windows, thresholds, pools and Gaussians are then the same on every rank without being sent. A batch of fewer
samples than ranks is run by all of them, and each counts for its share.

Bytes that a rank receives per batch of B samples: the inputs once, B·(D + K) numbers per pass (and B per channel that
is watched, where the score asks for looks), 2 numbers per channel, forward and backward, where statistics are the
batch's, and all gradients per step.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, final

import torch
import torch.distributed as dist
from torch import Tensor

from owttt.functional import wide
from owttt.network.inputs import Batch, Fields, tensors_of
from owttt.types import Forward

LAST_WORK = 0.1
"""Seconds that a process waits before it ends. Gloo's threads need the interpreter to let go of the tensors of their
last exchange; one that asks for it while the interpreter goes down aborts the process. `destroy_process_group` does not
wait for them where the first optimizer was made after the group: that imports modules which hold on to the group."""


@final
class Ranks:
    """The processes of a group, and which one this is."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError(
                "One stream on several processes needs torch.distributed: start the program with torchrun and call "
                'torch.distributed.init_process_group("gloo") (or "nccl") before wrap.'
            )
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.rows: tuple[int, int] | None = None
        """Rows of this rank and of all, while a pass is under way in which every rank has its own."""
        atexit.unregister(_wait_for_gloo)
        atexit.register(_wait_for_gloo)

    def __deepcopy__(self, _: Any) -> Self:
        return self

    def agree(self, said: Any, error: Exception | None = None) -> list[Any]:
        """Return what every rank says; if one has an error, all raise, and nobody waits for it.

        Raises:
            Exception: This rank's own error.
            RuntimeError: Another rank's.
        """
        both: list[Any] = [None] * self.size
        mine = (said, None if error is None else f"{type(error).__name__}: {error}")
        with self._together():
            dist.all_gather_object(both, mine, group=self.group)
        if error is not None:
            raise error
        for rank, (_, wrong) in enumerate(both):
            if wrong is not None:
                raise RuntimeError(f"Rank {rank} of {self.size} could not go on, so nobody does. {wrong}")
        return [theirs for theirs, _ in both]

    def unanimous(self, said: Any, what: str) -> None:
        """Raise on all ranks if they do not all say the same."""
        for rank, theirs in enumerate(self.agree(said)):
            if theirs != said:
                raise ValueError(
                    f"{what} must be the same on all ranks: rank {self.rank} has {said!r}, rank {rank} {theirs!r}."
                )

    def once(self, work: Callable[[], object]) -> None:
        """Do something in the first rank only; if it fails there, all raise."""
        wrong = None
        try:
            if self.rank == 0:
                work()
        except Exception as error:  # whatever it is, nobody must wait for this rank
            wrong = error
        self.agree(None, wrong)

    def joined(self, part: Batch, sizes: list[int]) -> Batch:
        """Return the whole batch of which every rank has a part of so many samples."""
        whole = {name: self._gathered(value, sizes) for name, value in tensors_of(part).items()}
        return Fields(whole) if isinstance(part, Fields) else whole[""]

    def shared(self, run: Callable[[Any], Forward], x: Batch) -> Forward:
        """Run a network on the rows that fall to this rank, and return what all ranks found."""
        if len(x) < self.size:
            out = run(x)
            return replace(out, features=_share(out.features, self.size), logits=_share(out.logits, self.size))
        sizes = [len(rows) for rows in torch.arange(len(x)).tensor_split(self.size)]
        start = sum(sizes[: self.rank])
        self.rows = (sizes[self.rank], len(x))
        try:
            out = run(x[start : start + sizes[self.rank]])
        finally:
            self.rows = None
        depth = None if out.depth is None else self._gathered(out.depth, sizes)
        return Forward(_gather(out.features, sizes, self), _gather(out.logits, sizes, self), depth=depth)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return mean and variance `(C,)` of every channel over the rows of all ranks, and of how many values they are.

        The variance is of distances to the common mean, not a difference of two large numbers.
        """
        assert self.rows is not None
        mine, all_of_them = self.rows
        channels = wide(x).transpose(0, 1).flatten(1)
        number = channels.shape[1] * all_of_them // mine
        mean = _sum(channels.sum(dim=1), self) / number
        variance = _sum((channels - mean[:, None]).square().sum(dim=1), self) / number
        return mean, variance, number

    def add_up(self, gradients: list[Tensor]) -> None:
        """Replace gradients by their sums over all ranks, in one exchange."""
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self.sum_(flat)
        for gradient, summed in zip(gradients, torch.split(flat, [one.numel() for one in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def sum_(self, values: Tensor) -> Tensor:
        """Replace values by their sum over all ranks."""
        with self._together():
            dist.all_reduce(values, group=self.group)
        return values

    def _gathered(self, part: Tensor, sizes: list[int]) -> Tensor:
        """Return the rows of all ranks, one rank's after the other's; parts are filled up to one length on the way."""
        plain = part.detach().to(torch.uint8) if part.dtype == torch.bool else part.detach()
        longest = max(sizes)
        sent = plain.new_zeros(longest, *plain.shape[1:])
        sent[: len(plain)] = plain
        received = [torch.empty_like(sent) for _ in sizes]
        with self._together():
            dist.all_gather(received, sent, group=self.group)
        return torch.cat([rows[:size] for rows, size in zip(received, sizes, strict=True)]).to(part.dtype)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Tell in plain words that somebody is gone."""
        try:
            yield
        except RuntimeError as error:
            raise ConnectionError(
                f"Rank {self.rank} of {self.size} waited for another process of this stream, which has died or does "
                "not answer. The adapter is as it was before the batch: start all ranks again and restore its last "
                f"saved state. ({str(error).splitlines()[0]})"
            ) from error


def _wait_for_gloo() -> None:
    time.sleep(LAST_WORK)


class _Gather(torch.autograd.Function):
    """All rows forward; backward the gradient of one's own rows, which is the same loss's on every rank."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, sizes: list[int], ranks: Ranks) -> Tensor:
        start = sum(sizes[: ranks.rank])
        ctx.rows = slice(start, start + sizes[ranks.rank])
        return ranks._gathered(part, sizes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][ctx.rows], None, None


class _Sum(torch.autograd.Function):
    """The sum over all ranks, forward and backward."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.sum_(part.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ranks: Ranks = ctx.ranks
        return ranks.sum_(gradients[0].clone(memory_format=torch.contiguous_format)), None


class _Share(torch.autograd.Function):
    """What every rank computes alike; each counts for its share, so that gradients add up to the whole."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, size: int) -> Tensor:
        ctx.size = size
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] / ctx.size, None


_gather: Callable[..., Tensor] = _Gather.apply
_sum: Callable[..., Tensor] = _Sum.apply
_share: Callable[..., Tensor] = _Share.apply
