"""A call as a transaction: the states of an adapter that can be gone back to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn

from owttt._utils import state


@final
class States:
    """What an adapter was in the beginning, and before the batch it is busy with; and the way back to either."""

    def __init__(self, adapter: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        self._adapter = adapter
        self._optimizer = optimizer
        self._shadow = state.Shadow()
        self._mechanics = state.Mechanics(adapter)
        self.initial = state.snapshot(adapter, optimizer)

    @property
    def now(self) -> dict[str, Tensor]:
        """The present state, by reference."""
        return state.collect(self._adapter, self._optimizer)

    @contextmanager
    def undone_on_error(self, before: dict[str, Tensor] | None = None) -> Iterator[dict[str, Tensor]]:
        """Give the state as it is now, or as it was `before`; whatever goes wrong inside, put it back."""
        if before is None:
            before = self._shadow.take(self._adapter, self._optimizer)
            self._mechanics.see_hooks()
        try:
            yield before
        except BaseException:
            self.go_back(before)
            raise

    def go_back(self, before: dict[str, Tensor]) -> None:
        """Put an earlier state back, also if this is interrupted."""
        interrupted: KeyboardInterrupt | None = None
        while True:
            try:
                self._mechanics.put_back(before)
                state.load(before, self._adapter, self._optimizer)
                break
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def begin_anew(self) -> None:
        """Put the state of the beginning back; hooks of others stay."""
        self._mechanics.remove_temporary()
        self._mechanics.see_hooks()
        self.go_back(self.initial)

    @contextmanager
    def without_leftovers(self) -> Iterator[None]:
        """Whatever goes wrong inside, remove hooks that were there for a call only."""
        try:
            yield
        except BaseException:
            self._mechanics.remove_temporary()
            raise

    def resume(self, tensors: dict[str, Tensor], origin: str) -> None:
        """Go on from a state that was saved; raises a ValueError, and changes nothing, if it does not fit."""
        state.check(tensors, self._adapter, origin, self._optimizer)
        state.load(tensors, self._adapter, self._optimizer)

    def begin_with(self, prefix: str) -> None:
        """Let the beginning have those tensors as they are now whose names begin with `prefix`."""
        self.initial |= {key: value.detach().clone() for key, value in self.now.items() if key.startswith(prefix)}
