"""All attacks, with the rounds of a short and of a long one."""

from tests.attack.archives import archives
from tests.attack.calls import calls, interruptions, poison, quietly, threads
from tests.attack.files import forgeries, kills, mutations
from tests.attack.memory import memory
from tests.attack.pages import pages
from tests.attack.tally import Attack

ATTACKS = (
    Attack("hostile calls", quietly(calls), 300, 25_000),
    Attack("one poisoned batch", quietly(poison), 12, 400),
    Attack("interruptions", quietly(interruptions), 60, 2_000, "linux"),
    Attack("threads", quietly(threads), 2, 60),
    Attack("mutated files", mutations, 20, 400),
    Attack("forged sizes", forgeries, 1, 1, "linux"),
    Attack("crafted archives", archives, 60, 3_000),
    Attack("kills while writing", kills, 8, 400, "linux"),
    Attack("injected pages", pages, 8, 400),
    Attack("memory of a stream", memory, 50, 200, "linux"),
)
