"""The description of a stream: a small JSON that decides everything about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, final, get_args

from owttt._utils.suggest import suggest
from owttt.data.naming import DataName
from owttt.data.registry import common_corruptions_of, corruptions_of

Phases = Literal["mixed", "changing", "recurring"]
Share = Literal["constant", "rising", "falling", "bursts"]
OLD_NAMES: Final = {"number": "num_samples"}
"""Earlier spelling of a field → its name now."""
ALL: Final = "all"
"""Stands for all corruptions: of one's own data, which may be images or clouds, the stream finds out."""


@final
@dataclass(frozen=True)
class StreamSpec:
    """Everything that decides a stream.

    known        set of known classes; a published corrupted one (`cifar10-c`) is read, others are corrupted here
    corruptions  none: clean; several: see `phases`. "all" stands for the 15 common ones
    severity     1 to 5
    frost        folder with photographs of ice, for the corruption frost; synthetic ice if None
    unknown      data sets of unknown classes, in equal shares; `name@corruption` corrupts one of them
    ratio        unknown samples for each known one; 0: none
    num_samples  known samples; all of them if None
    seed         decides which samples come, and their order; never how a corrupted image looks
    phases       several corruptions at once (mixed), one after the other (changing), that again and again (recurring)
    cycles       how often they recur
    share        of unknown samples over time: constant, rising, falling, or in bursts
    bursts       how many
    dirichlet    concentration of classes in time, e.g. 0.1: a few classes at a time; None: classes in any order
    repeat       whether samples of unknown sets may come more than once where a set is too small
    """

    known: str = "cifar10"
    corruptions: tuple[str, ...] = ()
    severity: int = 5
    frost: str | None = None
    unknown: tuple[str, ...] = ()
    ratio: float = 1.0
    num_samples: int | None = None
    batch_size: int = 256
    seed: int = 0
    phases: Phases = "mixed"
    cycles: int = 3
    share: Share = "constant"
    bursts: int = 5
    dirichlet: float | None = None
    repeat: bool = False

    def __post_init__(self) -> None:
        for field in ("corruptions", "unknown"):
            if isinstance(getattr(self, field), str):
                raise ValueError(f"{field} must be a list of names, got the word {getattr(self, field)!r}.")
            object.__setattr__(self, field, tuple(getattr(self, field)))
        if self.corruptions == (ALL,):
            object.__setattr__(self, "corruptions", common_corruptions_of(self.known) or (ALL,))
        self._check_names()
        self._check_numbers()

    def _check_names(self) -> None:
        wanted = [(name, self.known) for name in self.corruptions if self.corruptions != (ALL,)]
        wanted += [(data.corruption, data.plain) for data in self.unknown_names if data.corruption]
        for name, data in wanted:
            if name not in corruptions_of(data):
                raise ValueError(f"No corruption {name!r}. {suggest(name, corruptions_of(data))}")
        for field, choices in (("phases", get_args(Phases)), ("share", get_args(Share))):
            if getattr(self, field) not in choices:
                found = str(getattr(self, field))
                raise ValueError(f"{field} must be one of {list(choices)}, got {found!r}. {suggest(found, choices)}")

    def _check_numbers(self) -> None:
        lowest = {"batch_size": 1, "cycles": 1, "bursts": 1, "num_samples": 1, "seed": 0, "severity": 1}
        for field, least in lowest.items():
            value = getattr(self, field)
            if field == "num_samples" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{field} must be a whole number, at least {least}, got {value!r}.")
        if self.severity > 5:
            raise ValueError(f"severity must be 1 to 5, got {self.severity}.")
        if not isinstance(self.ratio, int | float) or not 0 <= self.ratio < float("inf"):
            raise ValueError(f"ratio must be a number, 0 or more, got {self.ratio!r}.")
        if self.dirichlet is not None and not (
            isinstance(self.dirichlet, int | float) and 0 < self.dirichlet < float("inf")
        ):
            raise ValueError(f"dirichlet must be a positive number, got {self.dirichlet!r}.")

    @property
    def unknown_names(self) -> tuple[DataName, ...]:
        """The unknown sets, read."""
        return tuple(map(DataName.parse, self.unknown))

    @property
    def data_names(self) -> tuple[DataName, ...]:
        """All data sets it draws from, the known one first."""
        return (DataName.parse(self.known), *self.unknown_names)

    def describe(self) -> dict[str, Any]:
        """Return what `StreamSpec.parse` takes; JSON holds it."""
        return asdict(self)

    @classmethod
    def parse(cls, description: Mapping[str, Any] | str) -> StreamSpec:
        """Read a description, as a dictionary or as JSON."""
        content = json.loads(description) if isinstance(description, str) else description
        if not isinstance(content, Mapping):
            raise ValueError(f"A stream is described by names and values, got {type(content).__name__}.")
        values = {OLD_NAMES.get(name, name): value for name, value in content.items()}
        known = {field.name for field in fields(cls)}
        for name in values:
            if name not in known:
                raise ValueError(f"A stream has no {name!r}. {suggest(name, sorted(known))}")
        return cls(**values)
