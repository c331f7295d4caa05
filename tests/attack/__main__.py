"""`make attack`: every attack at length, and a table of what was tried and what was violated."""

import sys
import time
import warnings

from rich.console import Console
from rich.table import Table

from tests.attack.attacks import ATTACKS


def main() -> int:
    """Attack, and return 1 if anything was violated."""
    warnings.simplefilter("ignore")
    table = Table("attack", "tried", "violated", "seconds", title="What was tried, and what did not hold")
    console, violated = Console(), 0
    for attack in (one for one in ATTACKS if sys.platform.startswith(one.needs)):
        start = time.perf_counter()
        tally = attack.start(attack.long)
        violated += len(tally.violations)
        table.add_row(
            attack.name, f"{tally.tried:,}", f"{len(tally.violations):,}", f"{time.perf_counter() - start:.0f}"
        )
        for violation in sorted(set(tally.violations))[:5]:
            console.print(f"{attack.name}: {violation}", style="red", markup=False, highlight=False)
    console.print(table)
    return int(violated > 0)


if __name__ == "__main__":
    sys.exit(main())
