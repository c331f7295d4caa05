"""What a method is: how it predicts, and the one place where it changes."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from owttt.detector import DEFAULT_SCORE, NamedScore
from owttt.methods.gathering import ENOUGH
from owttt.network.features import FeatureExtractor
from owttt.source import SourceStats
from owttt.types import Forward, Order, Verdict


class Method(nn.Module, ABC):
    """A way to adapt. A subclass is final, stores its options in `__init__`, and implements `adapt`.

    State lives in the network, in buffers and in the tensors of `self.optimizer`: resetting, saving and resuming then
    work without another line. Build state in `setup`, which runs once the network is there.
    """

    name: ClassVar[str]
    """What it is called in records; the class's own name unless it says otherwise."""

    adapts: ClassVar[bool] = True
    """Whether `adapt` changes anything."""

    cost: ClassVar[float] = 4.5
    """Time per sample in forward passes of the network, as measured in `benchmarks`; for estimates only."""

    color: ClassVar[str | None] = None
    """Its color in pictures."""

    version: ClassVar[int] = 1
    """Raised whenever a change of the method alone changes the numbers of its runs."""

    deployed: ClassVar[bool] = False
    """Whether benchmarks run it as `wrap` does by default, without a preset of the paper and its threshold."""

    usual_score: ClassVar[str] = DEFAULT_SCORE
    """The score that suits it where nobody chooses another; with a preset it is the paper's."""

    gathers: ClassVar[bool] = False
    """Whether it gathers small batches by itself until it has enough samples to learn from."""

    on_rails: bool = False
    """Whether few samples count for less; the adapter says so."""

    pace: float = 1.0
    """The share of a full step that the present samples are worth; an adapter on rails sets it."""

    network: FeatureExtractor
    source: SourceStats
    order: Order
    optimizer: torch.optim.Optimizer | None = None

    def __init__(self) -> None:
        super().__init__()

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def bind(self, network: FeatureExtractor, source: SourceStats, order: Order) -> Self:
        """Take over a network (the caller's copy), frozen and in evaluation mode, and set up."""
        self.network = network.eval().requires_grad_(False)
        self.source = source
        self.order: Order = order
        self.setup()
        return self

    def setup(self) -> None:
        """Create buffers and the optimizer, or raise a ValueError that says why this network cannot be adapted."""
        return

    def batch_share(self, samples: int) -> float:
        """Return how much statistics of so many samples count against the source's; on rails fewer count for less."""
        return min(1.0, samples / ENOUGH) if self.on_rails else 1.0

    @property
    def backpropagates(self) -> bool:
        """Whether `adapt` needs the graph of the forward pass it is given."""
        return False

    def forward(self, x: Tensor) -> Forward:
        """Return features and logits, in the mode this method predicts in. Changes nothing."""
        out: Forward = self.network(x)
        return out

    @property
    def own_score(self) -> NamedScore | None:
        """The score that the method brings, in the place of the adapter's; None if it leaves that to the adapter."""
        return None

    @abstractmethod
    def adapt(self, x: Tensor, out: Forward, verdict: Verdict) -> None:
        """Learn from a batch, from `out = self.forward(x)` and from what the detector said of it."""

    def watch(self) -> dict[str, float]:
        """Return the numbers worth watching while it runs, e.g. how full a memory is."""
        return {}

    def options(self) -> dict[str, Any]:
        """Return the options this method was made with."""
        names = inspect.signature(type(self)).parameters
        lost = [name for name in names if not hasattr(self, name)]
        if lost:
            raise TypeError(
                f"{type(self).__name__}.__init__ must store its options under their names; missing: {lost}."
            )
        return {name: getattr(self, name) for name in names}

    def optimize(
        self, parameters: Iterable[nn.Parameter], make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    ) -> None:
        """Thaw the parameters and give them an optimizer."""
        chosen = list(parameters)
        if not chosen:
            raise ValueError(
                f"Method {self.name!r} trains the network and found no parameters in front of its features."
            )
        for parameter in chosen:
            parameter.requires_grad_(True)
        self.optimizer = make(chosen)

    def optimize_backbone(self, lr: float, momentum: float) -> None:
        """SGD on all parameters but the head's."""
        self.optimize(
            self.network.backbone_parameters(), lambda chosen: torch.optim.SGD(chosen, lr=lr, momentum=momentum)
        )

    def descend(self, loss: Tensor, max_norm: float | None = None) -> None:
        """Take one step down the gradient of a loss."""
        self.network.zero_grad()
        torch.autograd.backward(loss)
        self.step(max_norm)

    def step(self, max_norm: float | None = None) -> None:
        """Take one step with the gradients gathered so far, as long as `pace` lets it be, and forget them.

        Those of other processes that share the stream are added. They are cut to a length of `max_norm` if given.
        """
        assert self.optimizer is not None
        groups = self.optimizer.param_groups
        parameters = [parameter for group in groups for parameter in group["params"]]
        if self.network.ranks is not None:
            self.network.ranks.add_up([parameter.grad for parameter in parameters if parameter.grad is not None])
        if max_norm is not None:
            nn.utils.clip_grad_norm_(parameters, max_norm)
        for group in groups:
            group["lr"] = self.pace * group.setdefault("full_lr", group["lr"])
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the optimizer's memory along with everything else (its step counts stay where torch keeps them)."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for memory in self.optimizer.state.values() if self.optimizer is not None else ():
            for name, value in memory.items():
                if isinstance(value, Tensor) and name != "step":
                    memory[name] = fn(value)
        return self

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: a method itself decides when a layer uses batch statistics."""
        del mode
        return super().train(False)
