"""A small world for the tests: a trained network in float64, its source data, and a contaminated stream."""

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from owttt import SourceStats

CLASSES = 4
UNKNOWNS = 3


class Net(nn.Module):
    """A convolutional network with BatchNorm whose features can be had without hooks."""

    def __init__(self, norm: bool = True, signed: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8) if norm else nn.Identity()
        self.hidden = nn.Linear(8 * 16, 12)
        self.last = nn.BatchNorm1d(12) if norm else nn.LayerNorm(12)
        self.inner, self.out = (nn.Identity(), nn.Tanh()) if signed else (nn.ReLU(), nn.ReLU())
        self.fc = nn.Linear(12, CLASSES)

    def embed(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(self.inner(self.norm(self.conv(x))), 2)
        return self.out(self.last(self.hidden(x.flatten(1))))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.embed(x))


@dataclass(frozen=True)
class World:
    model: Net
    x: Tensor
    y: Tensor
    source: SourceStats
    stream: tuple[tuple[Tensor, Tensor], ...]


@cache
def make_world(norm: bool = True, signed: bool = False, dtype: torch.dtype = torch.float64, batch: int = 40) -> World:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Net(norm, signed).to(dtype)
        templates = torch.randn(CLASSES + UNKNOWNS, 1, 8, 8, dtype=dtype)
        if signed:  # known images share a direction, unknown ones oppose it: cosine scores above 1
            templates += 1.5
            templates[CLASSES:] *= -1
        y = torch.arange(240) % CLASSES
        x = templates[y] + 0.5 * torch.randn(240, 1, 8, 8, dtype=dtype)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(3 if signed else 40):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.zero_grad()
        kinds = torch.randint(CLASSES + UNKNOWNS, (8 * batch - 7,))
        images = 0.7 * templates[kinds] + 0.4 + 0.6 * torch.randn(len(kinds), 1, 8, 8, dtype=dtype)
    model.eval()
    loader = list(zip(x.split(64), y.split(64), strict=True))
    source = SourceStats.fit(model, loader, CLASSES, progress=False)
    stream = tuple(zip(images.split(batch), kinds.split(batch), strict=True))
    return World(model, x, y, source, stream)
