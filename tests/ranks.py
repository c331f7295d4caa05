"""What each process of `tests/test_ranks.py` does: python -m tests.ranks JOB RANK SIZE FOLDER."""

import itertools
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from owttt import METHODS, wrap
from owttt._utils import state
from owttt.adapter.adapter import ORDERS
from tests.world import make_world


def parts(number, size):
    """Return where a batch is cut: unevenly, and differently for every length; some parts may be empty."""
    cuts = sorted((7 * number + 13 * place) % (number + 1) for place in range(1, size))
    return list(itertools.pairwise([0, *cuts, number]))


def mine(x):
    start, stop = parts(len(x), dist.get_world_size())[dist.get_rank()]
    return x[start:stop], slice(start, stop)


def same(ours, theirs, rows, exact):
    assert torch.equal(ours.labels, theirs.labels[rows])
    assert torch.equal(ours.closed, theirs.closed[rows])
    close = {"rtol": 1e-9, "atol": 1e-9} if exact else {"rtol": 2e-3, "atol": 2e-3}
    for name in ("scores", "logits", "confidence", "threshold"):
        whole = getattr(theirs, name)
        torch.testing.assert_close(getattr(ours, name), whole[rows] if whole.dim() else whole, **close)


def stream_of(world, batch):
    """Return a stream in batches of any size, the last one ragged: 193 samples, or 71 in small batches."""
    x = torch.cat([batch for batch, _ in world.stream])
    return x[: 193 if batch > 9 else 71].split(batch)


def follow(world, batch, exact=True, call="__call__", **choices):
    """Show a stream to an adapter of one process and to one of all: the answers have to be the same."""
    together = wrap(world.model, source=world.source, distributed=True, **choices)
    alone = wrap(world.model, source=world.source, **choices)
    for x in stream_of(world, batch):
        part, rows = mine(x)
        same(getattr(together, call)(part), alone(x), rows, exact)
        same(together.predict(part), alone.predict(x), rows, exact)
    ours, theirs = (state.collect(adapter, adapter.method.optimizer) for adapter in (together, alone))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(
            ours[name], value, **({"rtol": 1e-7, "atol": 1e-8} if exact else {"rtol": 0.02, "atol": 0.02})
        )


def alike():
    """Every method, both orders, with the paper's settings and on rails."""
    world = make_world()
    for method, order, preset in itertools.product(METHODS, ORDERS, ("paper", None)):
        follow(world, 40, method=method, order=order, preset=preset)


def hard():
    """No BatchNorm, signed features, single precision, few samples, answers before learning."""
    for method in sorted(set(METHODS) - {"bn"}):
        follow(make_world(norm=False), 40, method=method)
    follow(make_world(signed=True), 40, method="owttt", preset="paper")
    follow(make_world(dtype=torch.float32), 40, exact=False, method="owttt", preset="paper", threshold=0.3)
    for method in ("tent", "owttt", "owttt+"):
        follow(make_world(), 2, method=method)
        follow(make_world(), 40, method=method, preset="paper", call="predict_then_learn")
    follow(make_world(), 2, method="tent", preset="paper")


def refusals():
    """Bad parts, other options and failed writes are everybody's error, at once, and nothing has changed."""
    world, rank = make_world(), dist.get_rank()
    adapter = wrap(world.model, "owttt", source=world.source, distributed=True)
    before = {name: value.clone() for name, value in adapter.state_dict().items()}
    x = world.stream[0][0]
    with pytest.raises(ValueError if rank == 1 else RuntimeError, match="shape" if rank == 1 else "Rank 1 of"):
        adapter(x[:, :, :5] if rank == 1 else x)
    with pytest.raises(ValueError, match="empty batches on all"):
        adapter(x[:0])
    assert all(torch.equal(value, before[name]) for name, value in adapter.state_dict().items())
    with pytest.raises(ValueError, match="wraps differently"):
        wrap(world.model, "owttt", source=world.source, distributed=True, lr=1e-3 * (1 + rank))
    with pytest.raises(OSError if rank == 0 else RuntimeError):
        adapter.save("/proc/nowhere/state.safetensors")
    with pytest.raises(ValueError, match="same on all ranks: rank"):
        adapter.promote(x, f"class of rank {rank}")
    with pytest.raises(ValueError, match="same on all ranks: rank"):
        adapter.promote(x, 3 if rank else "three")
    assert not len(adapter.promoted)
    adapter.promote(x, "the same class")
    with pytest.raises(ValueError, match="same on all ranks: rank"):
        adapter.demote("the same class" if rank else "another")
    adapter(x)


def saving(folder):
    """Write a state after half of the stream."""
    world = make_world()
    adapter = wrap(world.model, "owttt", source=world.source, distributed=True)
    for x in stream_of(world, 40)[:3]:
        adapter(mine(x)[0])
    adapter.save(folder / "state.safetensors")


def resuming(folder):
    """Go on from a state that another number of processes wrote."""
    world = make_world()
    adapter = wrap(world.model, "owttt", source=world.source, distributed=True).restore(folder / "state.safetensors")
    alone = wrap(world.model, "owttt", source=world.source).restore(folder / "state.safetensors")
    for x in stream_of(world, 40)[3:]:
        part, rows = mine(x)
        same(adapter(part), alone(x), rows, exact=True)


def dying(folder):
    """One rank dies in the middle; the others say so, and are as they were before the batch."""
    world = make_world()
    adapter = wrap(world.model, "owttt", source=world.source, distributed=True)
    x = world.stream[0][0]
    adapter(mine(x)[0])
    if dist.get_rank() == 1:
        os._exit(9)
    before = {name: value.clone() for name, value in adapter.state_dict().items()}
    with pytest.raises(ConnectionError, match="has died or does not answer"):
        adapter(mine(x)[0])
    assert all(torch.equal(value, before[name]) for name, value in adapter.state_dict().items())
    (folder / f"told{dist.get_rank()}").touch()
    os._exit(0)


def main():
    job, rank, size, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / job}-{size}", rank=rank, world_size=size)
    work = globals()[job]
    work(folder) if job in ("saving", "resuming", "dying") else work()
    dist.barrier()
    os._exit(0)  # all is checked; gloo's threads now and then abort a process that ends in the usual way (torch 2.13.0)


if __name__ == "__main__":
    main()
