"""The contract every method passes. Write a method, then run `check_method(MyMethod)` in your tests.

Each check is a function in `CHECKS` that builds small networks and streams of its own, needs no data, and raises an
AssertionError that says what went wrong.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from owttt._utils import state
from owttt.adapter import Adapter, wrap
from owttt.methods.base import Method
from owttt.source import SourceStats
from owttt.types import Prediction

CLASSES: Final = 4
AnyMethod = str | Method | type[Method]


@dataclass(frozen=True)
class World:
    """A classifier, its source statistics, and a stream of known (shifted) and unknown samples to try a method on."""

    model: nn.Module
    source: SourceStats
    stream: Tensor

    def wrap(self, method: AnyMethod, **options: Any) -> Adapter:
        """Wrap the classifier with a method.

        Without the guard, which would hide what a method does wrong, and with a threshold that accepts some samples of
        any network.
        """
        return wrap(self.model, method, source=self.source, **{"guard": False, "threshold": "adaptive", **options})


def check_method(method: AnyMethod, **options: Any) -> None:
    """Run every check on a method (a name, a class, or an instance) with these options of `wrap`."""
    for name, check in CHECKS.items():
        try:
            check(method, **options)
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error


def make_world(network: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> World:
    """Build a world around a network for 1×8×8 images; the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = network().to(dtype)
        templates = torch.randn(2 * CLASSES, 1, 8, 8)
        labels = torch.arange(160) % CLASSES
        source = templates[labels] + 0.3 * torch.randn(160, 1, 8, 8)
        kinds = torch.randint(2 * CLASSES, (96,))
        stream = 0.8 * templates[kinds] + 0.3 + 0.5 * torch.randn(96, 1, 8, 8)
    loader = [(x.to(dtype), y) for x, y in zip(torch.split(source, 40), torch.split(labels, 40), strict=True)]
    return World(model, SourceStats.fit(model, loader, CLASSES, progress=False), stream.to(dtype))


def batch_norm_network() -> nn.Module:
    """Return a network with BatchNorm whose features are not negative."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(128, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES),
    )  # fmt: skip


def certain_network() -> nn.Module:
    """Return a network like `batch_norm_network` whose head is sure of itself: low entropy, high confidence."""
    network = batch_norm_network()
    head = network[-1]  # type: ignore[index]
    with torch.no_grad():
        head.weight.mul_(100)
    return network


def plain_network() -> nn.Module:
    """Return a network without any normalization."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def signed_network() -> nn.Module:
    """Return a network with LayerNorm and features of both signs, whose cosine scores exceed 1."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, CLASSES))


def adapt_changes_state(method: AnyMethod, **options: Any) -> None:
    """A method that says it adapts changes its state, and one that says it does not does not.

    A method that selects samples (by entropy, say) may take none of an untrained network's: it is also tried on a
    network whose head is certain, and it is enough that it learns from one of them.
    """
    changed: list[str] = []
    for network in (batch_norm_network, certain_network):
        world = make_world(network)
        adapter = world.wrap(method, **options)
        before = state.snapshot(adapter.method, adapter.method.optimizer)
        _run(adapter, world.stream)
        changed += _differences(before, state.collect(adapter.method, adapter.method.optimizer))
    says = adapter.method.adapts
    _require(
        bool(changed) == says,
        f"it says adapts = {says}, and changed {changed[:3] or 'nothing, on an untrained network and on a certain one'}"
        + (
            "; if it takes only some samples, it took none of 96: loosen its filter with options of check_method, or "
            "say adapts = False"
            if says
            else ""
        ),
    )


def predict_changes_nothing(method: AnyMethod, **options: Any) -> None:
    """Predicting leaves every tensor as it was."""
    world = make_world(batch_norm_network)
    adapter = world.wrap(method, **options)
    adapter(world.stream[:32])
    before = _whole(adapter)
    adapter.predict(world.stream[32:64])
    adapter.method(world.stream[32:64])
    changed = _differences(before, _whole(adapter))
    _require(not changed, f"predicting changed {changed[:3]}")


def reset_restores_everything(method: AnyMethod, **options: Any) -> None:
    """After a reset, the same stream gives the same answers and ends in the same state."""
    world = make_world(batch_norm_network)
    adapter = world.wrap(method, **options)
    start = _whole(adapter)
    first = _run(adapter, world.stream)
    end = _whole(adapter)
    adapter.reset()
    _require(not _differences(start, _whole(adapter)), "reset left a different state")
    _assert_same(first, _run(adapter, world.stream), "after a reset")
    _require(not _differences(end, _whole(adapter)), "the second run ended in a different state")


def saved_state_resumes(method: AnyMethod, **options: Any) -> None:
    """A new adapter that restores a saved state goes on bit for bit like the one that saved it."""
    world = make_world(batch_norm_network)
    adapter, fresh = world.wrap(method, **options), world.wrap(method, **options)
    _run(adapter, world.stream[:48])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        adapter.save(path)
        fresh.restore(path)
    _assert_same(_run(adapter, world.stream[48:]), _run(fresh, world.stream[48:]), "after restoring")
    _require(not _differences(_whole(adapter), _whole(fresh)), "the resumed run ended in a different state")


def any_batch_size(method: AnyMethod, **options: Any) -> None:
    """Batches of any size from one sample work, in any succession."""
    world = make_world(batch_norm_network)
    adapter = world.wrap(method, **options)
    start = 0
    for size in (1, 2, 3, 1, 17, 5, 1):
        out = adapter(world.stream[start : start + size])
        _require(len(out) == size, f"a batch of {size} got {len(out)} answers")
        start += size
        _assert_finite(adapter, f"after a batch of {size}")


def one_sided_batches(method: AnyMethod, **options: Any) -> None:
    """Batches that are all known, all unknown, or have a single sample of a kind work."""
    world = make_world(batch_norm_network)
    for threshold in (math.inf, -math.inf, _leave_one_below, _leave_one_above):
        adapter = world.wrap(method, **options | {"threshold": threshold})
        for batch in torch.split(world.stream, 16):
            adapter(batch)
        _assert_finite(adapter, f"with the threshold {threshold}")


def no_batch_norm(method: AnyMethod, **options: Any) -> None:
    """Without BatchNorm (or any normalization) a method works, or says why not when it wraps."""
    for network in (plain_network, signed_network):
        adapter = _wrapped_or_told(make_world(network), method, options)
        if adapter is not None:
            _run(adapter, make_world(network).stream)
            _assert_finite(adapter, f"on {network.__name__}")


def signed_features(method: AnyMethod, **options: Any) -> None:
    """Features of both signs (scores above 1) are split, not all rejected or all accepted."""
    world = make_world(signed_network)
    adapter = _wrapped_or_told(world, method, options | {"score": "cosine", "threshold": "adaptive"})
    if adapter is None:
        return
    out = _run(adapter, world.stream)
    rejected = float((out.labels < 0).float().mean())
    _require(0 < rejected < 1, f"{rejected:.0%} of signed features were rejected")
    _assert_finite(adapter, "on signed features")


def double_precision(method: AnyMethod, **options: Any) -> None:
    """A float64 network stays in float64, answers included."""
    world = make_world(batch_norm_network, torch.float64)
    adapter = world.wrap(method, **options)
    out = _run(adapter, world.stream)
    _require(out.scores.dtype == out.logits.dtype == torch.float64, f"answers came in {out.scores.dtype}")
    modules = state.collect(adapter, None).items()
    narrow = [name for name, value in modules if value.is_floating_point() and value.dtype != torch.float64]
    _require(not narrow, f"these tensors are not float64: {narrow[:3]}")


def mixed_precision(method: AnyMethod, **options: Any) -> None:
    """Under autocast to bfloat16 everything runs, stays finite, and predicts with the weights it has just learned."""
    world = make_world(batch_norm_network)
    once, each = world.wrap(method, **options), world.wrap(method, **options)
    with torch.autocast("cpu", torch.bfloat16):
        outer = _run(once, world.stream)
    for batch, scores in zip(torch.split(world.stream, 16), torch.split(outer.scores, 16), strict=True):
        with torch.autocast("cpu", torch.bfloat16):
            answer = each(batch)
        _require(
            torch.equal(answer.scores, scores), "one autocast around the stream gives other scores than one a batch"
        )
    _assert_finite(once, "under autocast")


def constant_input(method: AnyMethod, **options: Any) -> None:
    """A stream of one repeated image (a stuck camera, a black frame) neither breaks nor rejects everything."""
    world = make_world(batch_norm_network)
    for image in (torch.zeros_like(world.stream[:1]), world.stream[:1]):
        adapter = world.wrap(method, **options | {"threshold": "adaptive"})
        out = adapter(image.repeat(16, 1, 1, 1))
        _require((out.labels >= 0).any(), "identical samples were all rejected")
        _run(adapter, image.repeat(32, 1, 1, 1))
        _assert_finite(adapter, "on constant input")


def deterministic(method: AnyMethod, **options: Any) -> None:
    """The same stream gives the same answers, whatever the global random state."""
    world = make_world(batch_norm_network)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = _run(world.wrap(method, **options), world.stream)
        torch.manual_seed(2)
        _assert_same(first, _run(world.wrap(method, **options), world.stream), "in a second run")


def sees_no_labels(method: AnyMethod, **options: Any) -> None:
    """`adapt` takes the batch, the forward pass and the verdict: there is no place for a label."""
    adapter = make_world(batch_norm_network).wrap(method, **options)
    parameters = list(inspect.signature(adapter.method.adapt).parameters)
    _require(parameters == ["x", "out", "verdict"], f"adapt takes {parameters}")


def caller_is_untouched(method: AnyMethod, **options: Any) -> None:
    """The caller's model (weights, modes, gradients, hooks) and source statistics stay as they were."""
    world = make_world(batch_norm_network)
    world.model.train()
    before, statistics = copy.deepcopy(world.model), copy.deepcopy(world.source)
    lens = nn.Conv2d(1, 1, 1)
    _run(world.wrap(method, **options), lens(world.stream))
    _require(lens.weight.grad is None, "a gradient reached what the caller computed the batch with")
    for (name, mine), (_, theirs) in zip(world.model.named_modules(), before.named_modules(), strict=True):
        _require(mine.training == theirs.training, f"the mode of {name!r} changed")
        _require(len(mine._forward_hooks) == len(theirs._forward_hooks) == 0, f"{name!r} has a hook left")
    for mine, theirs in zip(world.model.parameters(), before.parameters(), strict=True):
        _require(mine.requires_grad == theirs.requires_grad, "requires_grad of a parameter changed")
        _require(mine.grad is None, "a gradient was left")
    _require(not _differences(dict(before.state_dict()), dict(world.model.state_dict())), "weights changed")
    kept = _differences(dict(statistics.named_buffers()), dict(world.source.named_buffers()))
    _require(not kept, f"the source statistics changed: {kept[:3]}")


def configuration_is_recorded(method: AnyMethod, **options: Any) -> None:
    """What was used can be read from the adapter and written as JSON."""
    config = make_world(batch_norm_network).wrap(method, **options).config
    _require(json.loads(json.dumps(config)) == config, f"not plain JSON: {config}")


CHECKS: Final[dict[str, Callable[..., None]]] = {
    check.__name__: check
    for check in (
        adapt_changes_state,
        predict_changes_nothing,
        reset_restores_everything,
        saved_state_resumes,
        any_batch_size,
        one_sided_batches,
        no_batch_norm,
        signed_features,
        double_precision,
        mixed_precision,
        constant_input,
        deterministic,
        sees_no_labels,
        caller_is_untouched,
        configuration_is_recorded,
    )
}


def _require(condition: bool, message: str) -> None:
    """Raise an AssertionError, also where `python -O` drops assert statements."""
    if not condition:
        raise AssertionError(message)


def _wrapped_or_told(world: World, method: AnyMethod, options: dict[str, Any]) -> Adapter | None:
    """Wrap; None where the method says in words that it cannot adapt this network, and names itself in doing so."""
    try:
        return world.wrap(method, **options)
    except ValueError as error:
        name = method if isinstance(method, str) else method.name
        _require(
            name in str(error) and len(str(error).split()) >= 6,
            f"it refuses a network without saying which method it is and what the network lacks: {error!r}",
        )
        return None


def _leave_one_below(scores: Tensor) -> Tensor:
    return scores[-16:].sort().values[1]


def _leave_one_above(scores: Tensor) -> Tensor:
    return scores[-16:].amax()


def _run(adapter: Adapter, stream: Tensor, size: int = 16) -> Prediction:
    """Return the answers to a stream, joined; the threshold is the last one."""
    answers = [adapter(batch) for batch in torch.split(stream, size)]

    def joined(name: str) -> Tensor:
        return torch.cat([getattr(answer, name) for answer in answers])

    return Prediction(
        labels=joined("labels"),
        scores=joined("scores"),
        threshold=answers[-1].threshold,
        logits=joined("logits"),
        closed=joined("closed"),
        confidence=joined("confidence"),
    )


def _whole(adapter: Adapter) -> dict[str, Tensor]:
    return state.snapshot(adapter, adapter.method.optimizer)


def _differences(a: dict[str, Tensor], b: dict[str, Tensor]) -> list[str]:
    shared = a.keys() & b.keys()
    return sorted(a.keys() ^ b.keys()) + sorted(name for name in shared if not torch.equal(a[name], b[name]))


def _assert_same(a: Prediction, b: Prediction, when: str) -> None:
    _require(torch.equal(a.label, b.labels), f"other labels {when}")
    _require(torch.equal(a.score, b.scores), f"other scores {when}")
    _require(torch.equal(a.threshold, b.threshold), f"another threshold {when}")


def _assert_finite(adapter: Adapter, when: str) -> None:
    broken = [name for name, value in _whole(adapter).items() if not value.isfinite().all()]
    _require(not broken, f"not finite {when}: {broken[:3]}")
