"""Modules that remember: statistics that keep their digits, and the queue that window, pool and features are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, final

import torch
from torch import Tensor, nn

from owttt.functional import wide


class Statistics(nn.Module):
    """A module whose numbers stay in single precision or better when its owner is moved to half."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def keep_digits(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if wide(moved) is moved else tensor.to(moved.device)

        super()._apply(keep_digits, recurse)  # type: ignore[no-untyped-call]
        return self


@final
class Kept(Statistics):
    """One tensor."""

    value: Tensor

    def __init__(self, first: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", first.clone())


@final
class Queue(Statistics):
    """The last `capacity` rows pushed, oldest first. A fixed buffer and a count, so that state saves and loads."""

    items: Tensor
    count: Tensor

    def __init__(self, capacity: int, shape: tuple[int, ...], like: Tensor) -> None:
        super().__init__()
        if capacity < 1:
            raise ValueError(f"A queue needs room for at least one row, got a length of {capacity}.")
        self.capacity = capacity
        self.register_buffer("items", like.new_zeros(capacity, *shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.long, device=like.device))

    @property
    def values(self) -> Tensor:
        """The rows held, oldest first (a view)."""
        return self.items[: int(self.count)]

    def joined(self, rows: Tensor) -> Tensor:
        """Return what `values` would be after pushing `rows`."""
        return torch.cat((self.values, rows.to(self.items.dtype)))[-self.capacity :]

    def push(self, rows: Tensor) -> None:
        """Append rows; beyond the capacity the oldest leave."""
        held = self.joined(rows.detach())
        self.items[: len(held)] = held
        self.count.fill_(len(held))
