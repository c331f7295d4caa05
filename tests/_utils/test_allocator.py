"""The allocator keeps what is freed, where there is one to tell."""

import subprocess
import sys

import pytest

from owttt._utils.allocator import keep_freed_memory

COUNT_FAULTS = """
import resource, torch
from owttt._utils.allocator import keep_freed_memory
if {keep}: assert keep_freed_memory()
def layers(): return len([torch.ones(4_000_000) for _ in range(8)])
for _ in range(3): layers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5): layers()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_it_can_be_told_twice():
    assert keep_freed_memory() == keep_freed_memory()


@pytest.mark.skipif(not keep_freed_memory(), reason="no glibc here")
def test_freed_memory_is_not_faulted_in_again():
    faults = [
        int(
            subprocess.run(
                [sys.executable, "-c", COUNT_FAULTS.format(keep=keep)], capture_output=True, check=True
            ).stdout
        )
        for keep in (False, True)
    ]
    if faults[0] == 0:
        pytest.skip("this kernel counts no page faults")
    assert faults[1] < faults[0] / 10
