"""Classes made of rejected samples: somebody looked at a group of them and gave it a name.

Of a class the direction μ of the mean of its unit features is kept, and how far it spreads:

    radius   r = mean + 2·deviation of 1 - cos(z, μ) over the samples it was made of
    claim    a sample belongs to it if cos(z, μ) exceeds its cosine to every source prototype, and 1 - cos(z, μ) <= r

whatever the threshold says. Scores, windows and thresholds stay as they are, and a method goes on learning from these
samples as from unknown ones: the network itself was never taught the class. Everything is in buffers of one shape,
names too, so that state saves, restores and rolls back with it.
"""

from __future__ import annotations

from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor

from owttt._utils.queue import Statistics
from owttt.functional import cosine_similarity, wide

ROOM: Final = 32
"""Promoted classes at most."""
LEAST: Final = 5
"""Samples that a class must be made of."""
NAME_BYTES: Final = 96
LEAST_GAP: Final = 1e-3
"""By how much a class that does not claim a sample stays behind the nearest source prototype."""
DEVIATIONS: Final = 2.0


@final
class Promoted(Statistics):
    """Up to `ROOM` classes beyond the source's, in the order in which they were made."""

    means: Tensor
    radii: Tensor
    written: Tensor
    count: Tensor

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        dimension = like.shape[1]
        self.register_buffer("means", like.new_zeros(ROOM, dimension))
        self.register_buffer("radii", like.new_zeros(ROOM))
        self.register_buffer("written", torch.zeros(ROOM, NAME_BYTES, dtype=torch.uint8, device=like.device))
        self.register_buffer("count", torch.zeros((), dtype=torch.long, device=like.device))

    def __len__(self) -> int:
        return int(self.count)

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called."""
        rows = (bytes(row.tolist()) for row in self.written[: len(self)].cpu())
        return tuple(row.rstrip(b"\0").decode() for row in rows)

    @torch.no_grad()
    def add(self, features: Tensor, name: str) -> None:
        """Make a class of features `(n, D)`.

        Raises:
            ValueError: There are too few samples, too many classes, or the name is empty, taken or too long.
        """
        text = name.encode()
        if not name.strip() or len(text) > NAME_BYTES or "\0" in name:
            raise ValueError(f"A class is named by 1 to {NAME_BYTES} bytes of text, got {name!r}.")
        if name == "unknown":
            raise ValueError('"unknown" is what samples of no class are called.')
        if name in self.names:
            raise ValueError(f"There is a promoted class {name!r} already; demote it first.")
        if len(features) < LEAST:
            raise ValueError(f"A class is made of at least {LEAST} samples, got {len(features)}.")
        if len(self) == ROOM:
            raise ValueError(f"There are {ROOM} promoted classes already, and no room for more; demote one.")
        unit = F.normalize(wide(features), dim=1).to(self.means.dtype)
        mean = F.normalize(unit.mean(dim=0), dim=0)
        away = 1 - unit @ mean
        place = len(self)
        self.means[place] = mean
        self.radii[place] = away.mean() + DEVIATIONS * away.std()
        self.written[place] = 0
        self.written[place, : len(text)] = torch.tensor(list(text), dtype=torch.uint8)
        self.count += 1

    @torch.no_grad()
    def remove(self, name: str) -> None:
        """Forget a class; those after it move up."""
        if name not in self.names:
            raise ValueError(f"No promoted class {name!r}; there are {list(self.names)}.")
        place, last = self.names.index(name), len(self)
        for buffer in (self.means, self.radii, self.written):
            buffer[place : last - 1] = buffer[place + 1 : last].clone()
            buffer[last - 1] = 0
        self.count -= 1

    @torch.no_grad()
    def claims(self, features: Tensor, nearest_known: Tensor) -> Tensor:
        """Return which class claims each sample `(B,)`, counted from 0; -1 where none does."""
        if not len(self):
            return torch.full_like(nearest_known, -1, dtype=torch.long)
        best, which = self.ahead(features, nearest_known).max(dim=1)
        return torch.where(best > 0, which, -1)

    @torch.no_grad()
    def ahead(self, features: Tensor, nearest_known: Tensor) -> Tensor:
        """Return by how much the cosine to each class exceeds that to the nearest source prototype, `(B, P)`.

        It is below 0 for samples beyond a class's radius, however near they are.
        """
        number = len(self)
        near = cosine_similarity(features.detach(), self.means[:number])
        beyond = 1 - near > self.radii[:number]
        return torch.where(beyond, (near - nearest_known[:, None]).clamp_max(-LEAST_GAP), near - nearest_known[:, None])
