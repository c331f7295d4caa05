"""A queue of fixed length: score window, prototype pool and feature queue are all this."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn


@final
class Queue(nn.Module):
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
