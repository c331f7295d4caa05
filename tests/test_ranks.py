"""One stream on several processes: the labels of one process, whatever the parts; nobody hangs when one dies."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from owttt import wrap
from owttt.network.ranks import Ranks
from tests.world import make_world

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")


def launch(job, size, folder, fails=()):
    """Run a job of `tests/ranks.py` on so many processes and wait for all of them."""
    words = [[sys.executable, "-m", "tests.ranks", job, str(rank), str(size), str(folder)] for rank in range(size)]
    about = {
        "cwd": Path(__file__).parents[1],
        "env": {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    }
    started = [subprocess.Popen(line, stderr=subprocess.PIPE, text=True, **about) for line in words]
    try:
        told = [process.communicate(timeout=240)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    for rank, process in enumerate(started):
        assert (process.returncode == 0) == (rank not in fails), f"rank {rank}: {told[rank][-3000:]}"


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_answer_like_one(size, tmp_path):
    launch("alike", size, tmp_path)


def test_hard_cases_too(tmp_path):
    launch("hard", 3, tmp_path)


def test_what_one_refuses_all_refuse(tmp_path):
    launch("refusals", 2, tmp_path)


def test_a_state_is_restored_by_any_number_of_processes(tmp_path):
    launch("saving", 2, tmp_path)
    launch("resuming", 3, tmp_path)
    launch("resuming", 1, tmp_path)


def test_a_rank_that_dies_stops_the_others(tmp_path):
    launch("dying", 3, tmp_path, fails=(1,))
    assert sorted(path.name for path in tmp_path.glob("told*")) == ["told0", "told2"]


def test_without_torchrun_it_says_what_to_do():
    world = make_world()
    with pytest.raises(RuntimeError, match="torchrun"):
        wrap(world.model, source=world.source, distributed=True)
    with pytest.raises(RuntimeError, match="init_process_group"):
        Ranks()
