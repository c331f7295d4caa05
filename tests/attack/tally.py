"""Counting what was tried and what was violated."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """How often something was tried, and what went wrong."""

    tried: int = 0
    violations: list[str] = field(default_factory=list)

    def check(self, held: bool, what: str) -> None:
        """Count one try."""
        self.tried += 1
        if not held:
            self.violations.append(what)


@dataclass(frozen=True)
class Attack:
    """`run(tally, rounds, random)`; `short` rounds in the tests, `long` ones in `make attack`."""

    name: str
    run: Callable[[Tally, int, random.Random], None]
    short: int
    long: int
    needs: str = ""
    """What the system has to be for it, the beginning of `sys.platform`."""

    def start(self, rounds: int) -> Tally:
        """Return what came of so many rounds, the same every time."""
        tally = Tally()
        self.run(tally, rounds, random.Random(self.name))
        return tally
