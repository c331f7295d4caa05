"""Hostile calls: whatever an adapter is called with, it answers or refuses, and never keeps half a step."""

import random
import signal
import sys
import threading
import warnings
from functools import cache

import torch

from owttt import METHODS, UNKNOWN, Prediction, wrap
from owttt._utils import state
from tests.attack.tally import Tally
from tests.world import make_world

ORDERS = ("predict-then-adapt", "adapt-then-predict")
REFUSALS = (ValueError, TypeError)
PATIENCE = 20.0
"""Points of accuracy that one bad batch may cost."""


@cache
def world():
    return make_world(dtype=torch.float32)


def batches():
    return [x for x, _ in world().stream]


def made(method, order=ORDERS[0], **options):
    return wrap(world().model, method, source=world().source, order=order, **options)


def whole(adapter):
    return state.snapshot(adapter, adapter.method.optimizer)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def hostile(rng: random.Random):
    """Return something to call an adapter with, and what it is."""
    x = rng.choice(batches()).clone()
    row, value = rng.randrange(len(x)), rng.choice([1e3, 1e10, 1e30, 3e38, -1e30, 1e-40, 0.0])
    some = rng.sample(range(len(x)), rng.randint(1, len(x)))
    makers = {
        "NaN": lambda: x.index_fill_(0, torch.tensor([row]), torch.nan),
        "infinity": lambda: x.index_fill_(0, torch.tensor([row]), rng.choice([torch.inf, -torch.inf])),
        "one image filled": lambda: x.index_fill_(0, torch.tensor([row]), value),
        "one image scaled": lambda: torch.cat((x[:row], x[row : row + 1] * value, x[row + 1 :])),
        "some images scaled": lambda: x.index_copy_(0, torch.tensor(some), x[some] * value),
        "one pixel": lambda: x.index_put_((torch.tensor(row), torch.tensor(0), torch.tensor(1)), torch.tensor(value)),
        "all scaled": lambda: x * value,
        "constant": lambda: torch.full_like(x, value),
        "one sample": lambda: x[row : row + 1],
        "one sample repeated": lambda: x[row : row + 1].expand_as(x),
        "an empty batch": lambda: x[:0],
        "another shape": lambda: torch.randn([rng.randint(0, 9) for _ in range(rng.randint(0, 5))]),
        "another type": lambda: x.to(rng.choice([torch.float16, torch.float64, torch.int64, torch.bool])),
        "complex numbers": lambda: x.to(torch.complex64),
        "a view with strides": lambda: x.transpose(2, 3),
        "a sparse tensor": x.to_sparse,
        "a leaf with a gradient": x.requires_grad_,
        "an array": x.numpy,
        "a list": x.tolist,
        "nothing": lambda: None,
        "a text": lambda: "x" * rng.randint(0, 9),
        "names": lambda: {rng.choice(["x", "image", "labels"]): x},
        "meta": lambda: x.to("meta"),
    }
    what = rng.choice(sorted(makers))
    return what, makers[what]()


def sound(answer, count):
    """Whether an answer is one: for every sample, in range, finite where nothing was left out."""
    return (
        isinstance(answer, Prediction)
        and len(answer) == count
        and bool(((answer.labels >= UNKNOWN) & (answer.labels < world().source.num_classes)).all())
        and bool(answer.scores[~answer.outliers].isfinite().all())
    )


def calls(tally: Tally, rounds: int, rng: random.Random) -> None:
    """Call adapters with anything: a sound answer and a finite state, or a refusal that changes nothing."""
    for number in range(rounds):
        if number % 12 == 0:
            method, order = rng.choice(sorted(METHODS)), rng.choice(ORDERS)
            adapter = made(method, order)
        what, x = hostile(rng)
        call = adapter if rng.random() < 0.7 else adapter.predict
        before, shown = whole(adapter), x.detach().clone() if isinstance(x, torch.Tensor) else None
        told = f"{method}, {order}: {what}"
        try:
            answer = call(x)
        except REFUSALS:
            tally.check(same(before, whole(adapter)), f"{told}: refused, yet the state changed")
            continue
        except Exception as error:
            tally.check(False, f"{told}: {type(error).__name__}: {error}")
            continue
        tally.check(sound(answer, len(x)), f"{told}: no sound answer")
        tally.check(not state.not_finite(whole(adapter)), f"{told}: the state is not finite")
        if call != adapter:
            tally.check(same(before, whole(adapter)), f"{told}: predict changed the state")
        if shown is not None and not x.is_sparse and x.device.type != "meta":
            tally.check(torch.equal(shown, x.detach()), f"{told}: the caller's tensor was changed")


def poison(tally: Tally, rounds: int, rng: random.Random) -> None:
    """One hostile batch among ordinary ones must not ruin what comes after."""
    kinds = [lambda x: x * 255, lambda x: x * 0 + 1e30, lambda x: -x * 1e6, lambda x: x * 1e-30, torch.zeros_like]
    for _ in range(rounds):
        method, order, kind = rng.choice(sorted(METHODS)), rng.choice(ORDERS), rng.choice(kinds)
        share, place = rng.choice([1, 0.5, 0.0]), rng.randrange(4)
        kept = []
        for poisoned in (False, True):
            adapter = made(method, order)
            for number, x in enumerate(batches()):
                count = max(1, round(share * len(x))) if poisoned and number == place else 0
                adapter(torch.cat((kind(x[:count]), x[count:])))
            kept.append(100 * float((adapter.predict(world().x).closed == world().y).float().mean()))
        told = f"{method}, {order}, {share:.0%} of batch {place}: {kept[0]:.0f} -> {kept[1]:.0f} %"
        tally.check(kept[1] > kept[0] - PATIENCE, told)


def interruptions(tally: Tally, rounds: int, rng: random.Random) -> None:
    """Ctrl-C at any moment: the state is that before the batch, or that after it."""

    def interrupt(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(rounds):
            if number % 20 == 0:
                method, order = rng.choice(sorted(METHODS)), rng.choice(ORDERS)
                adapter = made(method, order)
                adapter(batches()[0])
                start = whole(adapter)
                adapter(batches()[1])
                after = whole(adapter)
            state.load(start, adapter, adapter.method.optimizer)
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 8e-3))
                adapter(batches()[1])
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                now = whole(adapter)
                tally.check(same(now, start) or same(now, after), f"{method}, {order}: half a step was kept")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def threads(tally: Tally, rounds: int, rng: random.Random) -> None:
    """Several threads share an adapter, and the interpreter switches between them as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(rounds):
            _shared(tally, made(rng.choice(sorted(METHODS))))
    finally:
        sys.setswitchinterval(interval)


def _shared(tally, adapter):
    adapter(batches()[0])
    expected = [adapter.predict(x).scores for x in batches()]

    def ask(offset):
        for turn in range(10):
            n = (turn + offset) % len(expected)
            right = torch.equal(adapter.predict(batches()[n]).scores, expected[n])
            tally.check(right, "predict beside predict answered wrongly")

    def learn(offset):
        for turn in range(5):
            x = batches()[(turn + offset) % len(expected)]
            tally.check(sound(adapter(x), len(x)), "call beside call gave no sound answer")

    for target in (ask, learn):
        workers = [threading.Thread(target=target, args=(number,)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    tally.check(not state.not_finite(whole(adapter)), "threads left a state that is not finite")


def quietly(attack):
    """Return an attack without the warnings of the guard, which are as they should be."""

    def run(tally, rounds, rng):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            attack(tally, rounds, rng)

    return run
