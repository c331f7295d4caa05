"""DGCNN (Wang et al., ACM TOG 2019): edge convolutions on graphs of nearest neighbors, which each layer draws anew.

An edge convolution of a point x_i with its neighbors x_j is max_j LeakyReLU(BN(W·[x_j − x_i, x_i])). As
W·[x_j − x_i, x_i] = A·x_j + B·x_i, both products are of points, not of edges: k times fewer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, cast, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE: Final = 0.2
"""Of the LeakyReLU."""
GROUP: Final = 4
"""Points that are compared together in the search for neighbors."""


def neighbors(x: Tensor, number: int) -> Tensor:
    """Return the nearest points of every point of clouds `(B, P, C)`, itself among them: `(B, P, number)`."""
    with torch.no_grad():
        squared = x.square().sum(dim=2)
        return _largest(torch.baddbmm(-squared[:, None, :], x, x.transpose(1, 2), alpha=2), min(number, x.shape[1]))


def _largest(values: Tensor, number: int) -> Tensor:
    """Return where the largest `(B, P, number)` of each row of values `(B, P, Q)` are.

    A row is cut into groups of `GROUP`. The `number` groups with the largest heads hold all of them: a value in another
    group has the heads of all these before it. Most of a row is compared only once then.
    """
    groups, rest = divmod(values.shape[2], GROUP)
    if rest or groups <= number:
        return values.topk(number, dim=2, sorted=False).indices
    first = values.view(*values.shape[:2], GROUP, groups).amax(dim=2).topk(number, dim=2, sorted=False).indices
    places = (first[..., None] + groups * torch.arange(GROUP, device=values.device)).flatten(2)
    return places.gather(2, values.gather(2, places).topk(number, dim=2, sorted=False).indices)


@final
class EdgeConvolution(nn.Module):
    """One layer: neighbors in the space of its input, and the largest response over them."""

    def __init__(self, inputs: int, outputs: int, number: int) -> None:
        super().__init__()
        self.number = number
        self.theirs = nn.Linear(inputs, outputs, bias=False)
        self.own = nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return features `(B, P, outputs)` of points `(B, P, inputs)`."""
        batch, points, _ = x.shape
        index = neighbors(x, self.number)
        theirs = self.theirs(x)
        offset = torch.arange(batch, device=x.device)[:, None, None] * points
        gathered = theirs.reshape(batch * points, -1)[(index + offset).flatten()].view(*index.shape, -1)
        edges = gathered + self.own(x)[:, :, None]
        normed: Tensor = self.norm(edges.flatten(0, 2))
        return F.leaky_relu(normed, SLOPE).view_as(edges).amax(dim=2)


@final
class DGCNN(nn.Module):
    """Four edge convolutions, all of their outputs together, the largest and the mean over the points, a perceptron.

    The published one has width 64, 20 neighbors and 1,024 points; clouds `(B, P, 3)` of any number are taken.
    """

    def __init__(self, num_classes: int, width: int = 64, number: int = 20, dropout: float = 0.5) -> None:
        super().__init__()
        widths = (3, width, width, 2 * width, 4 * width)
        self.layers = nn.ModuleList(EdgeConvolution(inputs, outputs, number) for inputs, outputs in pairwise(widths))
        self.embed = nn.Linear(sum(widths[1:]), 16 * width, bias=False)
        self.embed_norm = nn.BatchNorm1d(16 * width)
        self.fc1 = nn.Linear(32 * width, 8 * width, bias=False)
        self.norm1 = nn.BatchNorm1d(8 * width)
        self.fc2 = nn.Linear(8 * width, 4 * width)
        self.norm2 = nn.BatchNorm1d(4 * width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(4 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        parts = []
        for layer in self.layers:
            x = cast(EdgeConvolution, layer)(x)
            parts.append(x)
        joined = torch.cat(parts, dim=2)
        points: Tensor = self.embed_norm(self.embed(joined).flatten(0, 1))
        points = F.leaky_relu(points, SLOPE).view(*joined.shape[:2], -1)
        pooled = torch.cat((points.amax(dim=1), points.mean(dim=1)), dim=1)
        y = self.dropout(F.leaky_relu(self.norm1(self.fc1(pooled)), SLOPE))
        y = self.dropout(F.leaky_relu(self.norm2(self.fc2(y)), SLOPE))
        logits: Tensor = self.head(y)
        return logits
