"""A classifier with its preprocessing inside: whoever has the model cannot get its input wrong."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast, final

import torch
from torch import Tensor, nn

from owttt.data.catalog import catalog
from owttt.data.corruptions.clouds.points import in_cube
from owttt.data.modalities import CLOUDS, IMAGES, Frame, Modality
from owttt.source import SourceStats

PIXEL_LIMIT: Final = 4.0
"""A float image beyond this is in 0 … 255, not in 0 … 1. Noise that is normal in normalized space leaves 0 … 1 and
stays below; so do most normalized images, which cannot be told apart from it."""

LARGEST: Final = 100_000
"""Pixels of a side, or points of a cloud, that a description may ask for."""


@final
@dataclass(frozen=True)
class Preprocessing:
    """What a network expects of an RGB image in 0 … 1: `(x·scale − mean) / std`, channels reversed if `bgr`.

    `size` and `resize` frame images of other sizes (see `Frame`); `mean` and `std` are in the network's order. A
    network that takes clouds says of how many `points` and nothing else: they are brought into the cube from −1 to 1.
    """

    size: int = 32
    resize: int | None = None
    mean: tuple[float, ...] = field(default_factory=lambda: catalog()["cifar10"].mean)
    std: tuple[float, ...] = field(default_factory=lambda: catalog()["cifar10"].std)
    scale: float = 1.0
    bgr: bool = False
    points: int | None = None

    @property
    def modality(self) -> Modality:
        """What the network takes."""
        return IMAGES if self.points is None else CLOUDS

    @property
    def frame(self) -> Frame:
        """Return the frame that makes images of this size, or clouds of as many points."""
        return Frame(self.size, self.resize, self.points)

    def describe(self) -> dict[str, Any]:
        """Return what `parse` takes; JSON holds it."""
        return asdict(self)

    @classmethod
    def parse(cls, description: Mapping[str, Any]) -> Preprocessing:
        """Read a description."""
        lists = {name: tuple(description[name]) for name in ("mean", "std")}
        sizes = [description.get(name) for name in ("size", "resize", "points")]
        if not all(size is None or (isinstance(size, int) and 1 <= size <= LARGEST) for size in sizes):
            raise ValueError(f"size, resize and points are whole numbers from 1 to {LARGEST:,}, got {sizes}.")
        return cls(**{**description, **lists})


@final
class SourceModel(nn.Module):
    """A network that takes RGB images `(B, 3, H, W)`, uint8 or float in 0 … 1; or clouds `(B, P, 3)`."""

    takes_bytes = True
    """Whether images may come in uint8, whatever the source data came in."""
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        preprocessing: Preprocessing,
        classes: Sequence[str],
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.memory_format = _memory_format(network)
        self.network: nn.Module = cast(Any, network).to(memory_format=self.memory_format)
        self.preprocessing = preprocessing
        self.classes = tuple(classes)
        self.names = tuple(classes if names is None else names)
        self.card: dict[str, Any] = {}
        """What was measured of it, empty if nothing was."""
        self._statistics: tuple[SourceStats, ...] = ()
        for name in ("mean", "std"):
            values = torch.tensor(getattr(preprocessing, name)).view(1, -1, 1, 1)
            self.register_buffer(name, values, persistent=False)

    @property
    def any_scale(self) -> bool:
        """Whether samples may come in any scale: clouds are brought into the cube."""
        return self.preprocessing.points is not None

    @property
    def source(self) -> SourceStats:
        """The statistics of its source data; no part of the network, so no submodule."""
        if not self._statistics:
            raise ValueError("This model has no source statistics; fit them with SourceStats.fit on its source data.")
        return self._statistics[0]

    def attach(self, source: SourceStats) -> None:
        """Give it its source statistics."""
        self._statistics = (source,)

    @property
    def has_source(self) -> bool:
        """Whether it came with source statistics."""
        return bool(self._statistics)

    def only(self, classes: Sequence[str]) -> SourceModel:
        """Return a copy in which only these classes compete: the head keeps their rows. It brings no statistics."""
        missing = [name for name in classes if name not in self.classes]
        if missing:
            raise ValueError(
                f"The model does not know {missing[:5]}, which are not among its {len(self.classes)} classes."
            )
        chosen = [self.classes.index(name) for name in classes]
        network = copy.deepcopy(self.network)
        heads = [
            name
            for name, module in network.named_modules()
            if isinstance(module, nn.Linear) and module.out_features == len(self.classes)
        ]
        if not heads:
            raise ValueError(f"The network has no linear layer with {len(self.classes)} outputs to take rows from.")
        head = network.get_submodule(heads[-1])
        assert isinstance(head, nn.Linear)
        smaller = nn.Linear(head.in_features, len(chosen), bias=head.bias is not None)
        smaller.load_state_dict({name: tensor[chosen] for name, tensor in head.state_dict().items()})
        owner, _, attribute = heads[-1].rpartition(".")
        setattr(network.get_submodule(owner), attribute, smaller.to(head.weight))
        return SourceModel(network, self.preprocessing, classes, [self.names[number] for number in chosen]).eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.network(self.prepare(x))
        return logits

    def prepare(self, x: Tensor) -> Tensor:
        """Return what the network itself sees."""
        if self.preprocessing.points is not None:
            return self._cloud(x, self.preprocessing.points)
        channels, size = self.mean.shape[1], self.preprocessing.size
        if x.dim() != 4 or x.shape[1] != channels:
            raise ValueError(f"Expected images (B, {channels}, H, W), got {tuple(x.shape)}.")
        if not self.training and x.shape[2:] != (size, size):
            raise ValueError(
                f"Expected images of {size} × {size} pixels, got {x.shape[2]} × {x.shape[3]}; use its frame."
            )
        if x.dtype == torch.uint8:
            x = x.to(self.mean.dtype) / 255
        elif not x.is_floating_point():
            raise ValueError(f"Expected images in uint8 or float, got {x.dtype}.")
        elif x.numel() and not float(x.abs().max()) <= PIXEL_LIMIT:
            raise ValueError(
                f"Float images must be in 0 … 1, got values up to {float(x.abs().max()):g}; divide by 255 or pass "
                "uint8. Do not normalize: the model does that itself."
            )
        if self.preprocessing.bgr:
            x = x.flip(1)
        x = (x * self.preprocessing.scale - self.mean) / self.std
        return x.contiguous(memory_format=self.memory_format)

    def _cloud(self, x: Tensor, points: int) -> Tensor:
        if x.dim() != 3 or x.shape[2] != 3 or not x.is_floating_point():
            raise ValueError(f"Expected clouds (B, {points}, 3) in float, got {x.dtype} {tuple(x.shape)}.")
        if not self.training and x.shape[1] != points:
            raise ValueError(f"Expected clouds of {points} points, got {x.shape[1]}; use its frame.")
        return in_cube(x)


def _memory_format(network: nn.Module) -> torch.memory_format:
    """Return channels_last, the faster one, unless torch cannot be trusted with it.

    The backward pass of a 1×1 convolution with a stride on fewer than 8 channels writes beyond its memory there (torch
    2.13.0 on x86), and the process dies.
    """
    convolutions = (module for module in network.modules() if isinstance(module, nn.Conv2d))
    deadly = any(conv.kernel_size == (1, 1) and conv.stride != (1, 1) and conv.in_channels < 8 for conv in convolutions)
    return torch.contiguous_format if deadly else torch.channels_last
