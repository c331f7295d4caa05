"""Memory over a long stream: what the process holds once freed memory is given back does not grow."""

import json
import random
import subprocess
import sys

from tests.attack.tally import Tally

STREAM = """
import json, sys, torch
from owttt import SourceStats, models, wrap
from owttt._utils.allocator import keep_freed_memory
torch.set_num_threads(1)
keep_freed_memory()
batches, side, size = map(int, sys.argv[1:])
torch.manual_seed(0)
model = models.build("resnet20", 10, 16).eval()
y = torch.arange(400) % 10
templates = torch.randn(20, 3, side, side)
x = templates[y] + torch.randn(400, 3, side, side)
source = SourceStats.fit(model, list(zip(x.split(100), y.split(100))), 10, progress=False)
adapter = wrap(model, "owttt", source=source, window=4 * size)
resident = []
for number in range(batches):
    kinds = torch.randint(20, (size,))
    adapter(templates[kinds] * torch.rand(size, 1, 1, 1) + torch.randn(size, 3, side, side))
    if (number + 1) % (batches // 5) == 0:
        status = open("/proc/self/status").read()
        resident.append(int(status.split("VmRSS:")[1].split()[0]) // 1024)
print(json.dumps(resident))
"""
GROWTH = 1.1


def memory(tally: Tally, rounds: int, rng: random.Random) -> None:
    """Run a stream of `rounds` batches in a process of its own, and compare its middle with its end.

    At first it grows by a few dozen megabytes: the library of convolutions remembers shapes, up to a bound.
    """
    del rng
    words = [sys.executable, "-c", STREAM, str(rounds), "16", "128"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    resident = json.loads(done.stdout)
    tally.check(resident[-1] < GROWTH * resident[2], f"grew from {resident[2]} to {resident[-1]} MB: {resident}")
