"""Every attack in short; `make attack` runs them at length."""

import sys

import pytest

from tests.attack.attacks import ATTACKS
from tests.attack.tally import Attack, Tally


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_nothing_is_violated(attack):
    if not sys.platform.startswith(attack.needs):
        pytest.skip(f"needs {attack.needs}")
    tally = attack.start(attack.short)
    assert tally.tried > 0
    assert tally.violations == []


def test_a_violation_is_counted():
    def breaks(tally: Tally, rounds, rng):
        for number in range(rounds):
            tally.check(number != 2, f"number {number}")

    tally = Attack("example", breaks, 4, 4).start(4)
    assert (tally.tried, tally.violations) == (4, ["number 2"])
