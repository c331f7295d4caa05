"""The statistics that a network normalizes with: swapped for others, or measured on some samples.

In a network with BatchNorm these are mean and variance of every channel of every such layer. In a network without it
a shift of the inputs can be undone where samples are looked at: at its features, and at the layers on the way
(`network.depth`), of which the means are moved back to the source's. Both are one tensor `(2, C)`, means and variances,
so that a method can mix and keep them without knowing which it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from owttt._utils.state import temporary
from owttt.functional import floating, wide
from owttt.network.features import FeatureExtractor
from owttt.network.inputs import Batch, first_argument, tensors_of
from owttt.network.norm import (
    LAST,
    batch_moments,
    batch_norms,
    normalizations,
    own_statistics,
    sharing,
    values_per_channel,
)
from owttt.types import Forward

if TYPE_CHECKING:
    from owttt.source import SourceStats

LEAST_VARIANCE: Final = 1e-12


def mixed(one: Tensor, two: Tensor, share: float) -> Tensor:
    """Return the statistics of samples of which a `share` s has the second ones.

    The variance is that of the mixture, (1 - s)·v_1 + s·v_2 + s·(1 - s)·(m_1 - m_2)².
    """
    between = share * (1 - share) * (one[0] - two[0]).square()
    mean, variance = torch.lerp(one, two, share)
    return torch.stack((mean, (variance + between).clamp_min(LEAST_VARIANCE)))


class Normalization(ABC):
    """What a network normalizes with."""

    changes_answers: ClassVar[bool] = True
    """Whether the logits depend on it."""

    def __init__(self, network: FeatureExtractor) -> None:
        self.network = network

    @property
    @abstractmethod
    def source(self) -> Tensor:
        """The statistics `(2, C)` that the network came with."""

    def is_source(self, statistics: Tensor) -> bool:
        """Whether these are the statistics that the network came with."""
        return bool((statistics == self.source).all())

    @abstractmethod
    def run(self, x: Batch, statistics: Tensor) -> Forward:
        """Run the network with these statistics."""

    @abstractmethod
    def measure(self, x: Batch) -> tuple[Tensor, Forward]:
        """Return the statistics of these samples, and what the network says of them when it uses these."""


@final
class LayerStatistics(Normalization):
    """Those of BatchNorm layers. A layer that sees one value per channel keeps what it has."""

    def __init__(self, network: FeatureExtractor) -> None:
        super().__init__(network)
        self.layers = batch_norms(network)
        self.sizes = [layer.num_features for layer in self.layers]

    @property
    def source(self) -> Tensor:
        """Read from the layers, which are never changed."""
        means, variances = zip(*((layer.running_mean, layer.running_var) for layer in self.layers), strict=True)
        return wide(torch.stack((torch.cat(means), torch.cat(variances))))

    def is_source(self, statistics: Tensor) -> bool:
        """Whether these are what the layers have, in the layers' precision."""
        kept = self.layers[0].running_mean
        return kept is not None and bool((statistics.to(kept.dtype) == self.source).all())

    def run(self, x: Batch, statistics: Tensor) -> Forward:
        """Run the network with these in the place of its running statistics."""
        with own_statistics(self.layers):
            for layer, part in zip(self.layers, torch.split(statistics, self.sizes, dim=1), strict=True):
                layer.running_mean, layer.running_var = part.to(layer.running_mean)
            out: Forward = self.network(x)
        return out

    def measure(self, x: Batch) -> tuple[Tensor, Forward]:
        """Run the network, every layer with the statistics of what it is given."""

        @temporary
        def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = first_argument(args, kwargs)
            shared = sharing(self.network) is not None
            if isinstance(layer, _BatchNorm) and (shared or values_per_channel(given) > 1):
                moments = batch_moments(self.network, given)
                layer.running_mean, layer.running_var = torch.stack(moments).to(layer.running_mean)

        with own_statistics(self.layers):
            handles = [layer.register_forward_pre_hook(before, with_kwargs=True) for layer in self.layers]
            try:
                out: Forward = self.network(x)
                return self.source, out
            finally:
                for handle in handles:
                    handle.remove()


@final
class FeatureStatistics(Normalization):
    """The means of the features and of how samples look on the way, moved back to the source's: f - mean + μ_s.

    Variances are kept, and not used. Where looks are not asked for, or not known of the source, features are all there
    is.
    """

    changes_answers = False

    def __init__(self, network: FeatureExtractor, source: SourceStats) -> None:
        super().__init__(network)
        self.stats = source

    @property
    def source(self) -> Tensor:
        """Mean and variances of the source's features, and looks."""
        features = torch.stack((self.stats.mean, self.stats.covariance.diagonal()))
        if not self.network.watches or self.stats.depth_mean is None or self.stats.depth_std is None:
            return features
        return torch.cat((features, torch.stack((self.stats.depth_mean, self.stats.depth_std.square()))), dim=1)

    def run(self, x: Batch, statistics: Tensor) -> Forward:
        """Run the network and move what it gives; logits are those of the features as they were."""
        return self._moved(self.network(x), statistics)

    def measure(self, x: Batch) -> tuple[Tensor, Forward]:
        """Run the network, and move the means of what it gives to the source's."""
        out: Forward = self.network(x)
        values = out.features if out.depth is None else torch.cat((out.features, out.depth), dim=1)
        variance, mean = torch.var_mean(wide(values.detach()), dim=0, correction=0)
        statistics = torch.stack((mean, variance)).to(self.stats.mean.dtype)
        return statistics, self._moved(out, statistics)

    def _moved(self, out: Forward, statistics: Tensor) -> Forward:
        shift = self.source[0] - statistics[0]
        number = out.features.shape[1]
        depth = None if out.depth is None else out.depth + shift[number:].to(out.depth.dtype)
        return replace(out, features=out.features + shift[:number].to(out.features.dtype), depth=depth)


def normalization(network: FeatureExtractor, source: SourceStats) -> Normalization:
    """Return what a network normalizes with."""
    return LayerStatistics(network) if batch_norms(network) else FeatureStatistics(network, source)


@torch.no_grad()
def looks(network: FeatureExtractor, x: Batch) -> Tensor:
    """Return how each sample looks, `(B, 2, C)`: mean and deviation of what its first normalization layer is given.

    Early channels tell light, contrast, texture and noise rather than what is shown. The network is run up to there
    only; without any such layer the channels of the input itself are taken, integers as numbers. A layer that is given
    several rows per sample (points, edges) is understood. The values of plain vectors are means without deviation.
    """
    seen: list[Tensor] = []

    @temporary
    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given: Tensor = first_argument(args, kwargs)
        values = given.movedim(-1, 1) if isinstance(layer, LAST) else given
        rows, rest = divmod(len(values), len(x))
        if not rest:
            seen.append(values if rows == 1 else values.view(len(x), rows, *values.shape[1:]).transpose(1, 2))
        raise _Enough

    handles = [layer.register_forward_pre_hook(before, with_kwargs=True) for layer in normalizations(network)]
    try:
        if handles:
            network.alone(x)
    except _Enough:
        pass
    finally:
        for handle in handles:
            handle.remove()
    values = wide(seen[0] if seen else floating(next(iter(tensors_of(x).values()))))
    if values.dim() == 2:
        return torch.stack((values, torch.zeros_like(values)), dim=1)
    deviation, mean = torch.std_mean(values.flatten(2), dim=2, correction=0)
    return torch.stack((mean, deviation), dim=1)


class _Enough(Exception):  # noqa: N818  (no error: what was wanted is there)
    """The first normalization layer was reached."""
