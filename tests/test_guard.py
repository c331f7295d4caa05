"""A call is a transaction: whatever happens in it, the adapter is as before, or has learned something plausible."""

import copy
import math
import pickle
import signal
import sys
import threading
import time
from unittest.mock import Mock

import pytest
import torch

from owttt import METHODS, UNKNOWN, Forward, Method, SourceStats, wrap
from owttt._utils import state
from owttt._utils.background import Background
from owttt.adapter.adapter import TIDY
from owttt.adapter.guard import implausible_features, implausible_inputs, implausible_state
from tests.world import CLASSES, make_world

WORLD = make_world(dtype=torch.float32)
BATCHES = [x for x, _ in WORLD.stream]
ORDERS = ("predict-then-adapt", "adapt-then-predict")


def made(method="owttt", **options):
    return wrap(WORLD.model, method, source=WORLD.source, **{"preset": "paper", **options})


def whole(adapter):
    return state.snapshot(adapter, adapter.method.optimizer)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, TimeoutError])
def test_an_error_leaves_everything_as_it_was(method, order, error, monkeypatch):
    adapter, twin = made(method, order=order), made(method, order=order)
    for x in BATCHES[:2]:
        adapter(x), twin(x)
    before = whole(adapter)
    learn = adapter.method.adapt

    def fails(x, out, verdict):
        learn(x, out, verdict)
        raise error("in the middle")

    monkeypatch.setattr(adapter.method, "adapt", fails)
    if adapter.method.adapts or order == ORDERS[0]:
        with pytest.raises(error):
            adapter(BATCHES[2])
    monkeypatch.undo()
    if adapter.method.adapts or order == ORDERS[0]:
        assert same(before, whole(adapter))
        assert torch.equal(adapter(BATCHES[3]).scores, twin(BATCHES[3]).scores), "it goes on as if nothing had been"
        assert same(whole(adapter), whole(twin))


def test_an_error_before_the_first_step_takes_the_optimizer_s_memory_back():
    adapter = made("tent")
    learn = adapter.method.adapt

    def fails(x, out, verdict):
        learn(x, out, verdict)
        raise RuntimeError

    adapter.method.adapt = fails
    with pytest.raises(RuntimeError):
        adapter(BATCHES[0])
    assert adapter.method.optimizer.state_dict()["state"] == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one that a callback swallows
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
@pytest.mark.parametrize("method", ["owttt", "tent", "bn"])
def test_interruptions_at_any_moment(method):
    """Ctrl-C wherever it comes: the state is that before the batch, or that after it, and so is what comes next."""
    adapter = made(method)
    adapter(BATCHES[0])
    start = whole(adapter)
    began = time.perf_counter()
    adapter(BATCHES[1])
    length = time.perf_counter() - began
    after, later = whole(adapter), adapter.predict(BATCHES[2]).scores
    interrupted = 0

    def interrupt(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for trial in range(60):
            state.load(start, adapter, adapter.method.optimizer)
            try:
                signal.setitimer(signal.ITIMER_REAL, max(1e-4, length * (trial + 0.5) / 60))
                adapter(BATCHES[1])
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            now = whole(adapter)
            assert same(now, start) or same(now, after), trial
            if same(now, after):
                assert torch.equal(adapter.predict(BATCHES[2]).scores, later)
    finally:
        signal.signal(signal.SIGALRM, old)
    assert interrupted > 5, "or this shows nothing"


def bad_batches():
    x = BATCHES[0]
    one = {
        "scaled by 255": x[3] * 255 * 20,
        "a pixel of 1e30": x[3].clone().index_fill_(1, torch.tensor([2]), 1e30),
        "a channel far off": x[3] + 1e4,
    }
    return {name: torch.cat((x[:3], picture[None], x[4:])) for name, picture in one.items()}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", bad_batches())
def test_one_bad_picture_ruins_nothing(method, order, name):
    """It is rejected and told, and the rest is answered and learned from as if it had not been there."""
    adapter, without = made(method, order=order), made(method, order=order)
    with pytest.warns(UserWarning, match=r"Batch 0: 1 of \d+ samples are nothing like the source data"):
        out = adapter(bad_batches()[name])
    rest = torch.tensor([n != 3 for n in range(len(out))])
    expected = without(BATCHES[0][rest])
    assert out.outliers.tolist() == (~rest).tolist()
    assert int(out.labels[3]) == UNKNOWN
    assert torch.equal(out.labels[rest], expected.labels)
    assert torch.equal(out.scores[rest], expected.scores)
    assert float(out.scores[3]) >= float(out.scores.max())
    assert same(whole(adapter), whole(without))
    assert [(event.batch, event.kind) for event in adapter.events] == [(0, "outliers")]
    adapter(BATCHES[1])
    assert len(adapter.events) == 1
    adapter.reset()
    assert adapter.events == []


def test_a_batch_of_outliers_is_answered():
    adapter = made()
    with pytest.warns(UserWarning, match="nothing like the source data"):
        out = adapter(torch.full_like(BATCHES[0], 1e20))
    assert (out.labels == UNKNOWN).all()
    assert not out.learned
    assert out.logits.shape == (len(out), CLASSES)
    with pytest.warns(UserWarning, match="nothing like the source data"):
        assert (made().predict(torch.full_like(BATCHES[0], 1e20)).labels == UNKNOWN).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("call", ["outlier", "bad update"])
def test_a_warning_points_at_the_line_that_called(order, call, monkeypatch):
    adapter = made(order=order)
    x = BATCHES[0].clone()
    if call == "outlier":
        x[0] *= 1e9
    else:
        monkeypatch.setattr(adapter, "_implausible", lambda: "weights")
    with pytest.warns(UserWarning, match="Batch 0") as told:
        adapter(x)
    assert told[0].filename == __file__


@pytest.mark.parametrize("order", ORDERS)
def test_an_update_beyond_reason_is_taken_back(order):
    adapter, plain = made("ttac", lr=1e30, order=order), made("test", order=order)
    with pytest.warns(UserWarning, match="rolled back"):
        outs = [adapter(x) for x in BATCHES[:3]]
    assert not any(out.learned for out in outs)
    assert [event.kind for event in adapter.events] == ["rolled back"] * 3
    first = plain.predict(BATCHES[0])
    assert torch.equal(outs[0].closed, first.closed), "it answers as the model that it was"
    assert not implausible_state(whole(adapter), whole(adapter), "method.network.")


def test_ordinary_streams_never_meet_the_guard():
    for method in METHODS:
        guarded, free = made(method), made(method, guard=False)
        for x in BATCHES:
            assert torch.equal(guarded(x).scores, free(x).scores)
        assert guarded.events == []


def test_states_that_are_not_finite_are_neither_kept_nor_taken(tmp_path):
    adapter = made()
    adapter(BATCHES[0])
    adapter.save(tmp_path / "good")
    next(adapter.method.network.parameters()).data[0] = torch.nan
    with pytest.raises(FloatingPointError, match="This state is not worth keeping"):
        adapter.save(tmp_path / "bad")
    assert not (tmp_path / "bad").exists()
    adapter.restore(tmp_path / "good")
    tensors = state.snapshot(adapter, adapter.method.optimizer)
    key = next(name for name in tensors if name.startswith("optimizer."))
    for wrong in (torch.zeros(3, 3), torch.full_like(tensors[key], torch.inf)):
        with pytest.raises(ValueError, match=r"do not fit|hold NaN or infinity"):
            state.check({**tensors, key: wrong}, adapter, "f", adapter.method.optimizer)
    with pytest.raises(ValueError, match="do not fit"):
        state.check({**tensors, "optimizer.99.momentum_buffer": tensors[key]}, adapter, "f", adapter.method.optimizer)


def test_inputs_are_held_against_the_source(tmp_path):
    source = WORLD.source
    assert source.input_range.tolist() == [float(WORLD.x.min()), float(WORLD.x.max())]
    flat = WORLD.x.transpose(0, 1).flatten(1)
    assert torch.allclose(source.input_mean, flat.mean(dim=1), atol=1e-5)
    assert torch.allclose(source.input_std, flat.std(dim=1, correction=0), atol=1e-5)
    source.save(tmp_path / "s")
    again = SourceStats.load(tmp_path / "s")
    assert torch.equal(again.input_range, source.input_range)
    assert again.fingerprint == source.fingerprint
    early = SourceStats(source.info, {n: t for n, t in source._tensors().items() if not n.startswith("input_")})
    assert early.fingerprint == source.fingerprint, "those fitted before have the same one"
    assert not implausible_inputs(torch.full((2, 1, 8, 8), 1e30), early).any(), "and say nothing of inputs"


def test_copies_have_a_lock_of_their_own():
    adapter = made()
    adapter(BATCHES[0])
    for other in (copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))):
        assert torch.equal(other.predict(BATCHES[1]).scores, adapter.predict(BATCHES[1]).scores)
        assert other._lock is not adapter._lock


def test_threads_wait_for_each_other():
    """Every answer of `predict` is right beside others, and calls from several threads leave a sound state."""
    adapter = made()
    adapter(BATCHES[0])
    expected = [adapter.predict(x).scores for x in BATCHES]
    wrong, errors = [], []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def ask(offset):
        try:
            for turn in range(30):
                n = (turn + offset) % len(BATCHES)
                if not torch.equal(adapter.predict(BATCHES[n]).scores, expected[n]):
                    wrong.append(n)
        except Exception as error:
            errors.append(error)

    def learn():
        try:
            for x in BATCHES[:6]:
                adapter(x)
        except Exception as error:
            errors.append(error)

    try:
        for target in (ask, lambda _: learn()):
            threads = [threading.Thread(target=target, args=(number,)) for number in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
    finally:
        sys.setswitchinterval(interval)
    assert (wrong, errors) == ([], [])
    assert adapter._log.batches == 1 + 4 * 6
    assert not state.not_finite(whole(adapter))


def test_a_method_of_one_s_own_is_guarded_too():
    class Explodes(Method):
        def setup(self):
            self.optimize_backbone(1.0, 0.0)

        def adapt(self, x, out, verdict):
            for parameter in self.network.backbone_parameters():
                parameter.data.mul_(1e9)

    adapter = wrap(WORLD.model, Explodes, preset="paper", source=WORLD.source)
    with pytest.warns(UserWarning, match="rolled back"):
        assert not adapter(BATCHES[0]).learned
    assert torch.equal(adapter.predict(BATCHES[0]).closed, made("test").predict(BATCHES[0]).closed)


def test_a_collapse_is_seen():
    class Collapses(Method):
        """Turns every feature towards one class."""

        def setup(self):
            self.optimize_backbone(1.0, 0.0)

        def forward(self, x):
            out = super().forward(x)
            return type(out)(out.features * 0 + self.source.class_means[2], out.logits)

        def adapt(self, x, out, verdict):
            return

    healthy, broken = made("test"), wrap(WORLD.model, Collapses, preset="paper", source=WORLD.source)
    for x in BATCHES[:4]:
        healthy(x), broken(x)
    assert broken.watch()["classes"] == 1
    closed = torch.cat([made("test").predict(x).closed for x in BATCHES[:4]])
    shares = torch.bincount(closed, minlength=CLASSES) / len(closed)
    expected = math.exp(-sum(float(p) * math.log(float(p)) for p in shares if p))
    assert healthy.watch()["classes"] == pytest.approx(expected, abs=0.01)
    assert expected > 1.5
    assert "pool" in made("owttt").watch()
    healthy.reset()
    assert math.isnan(healthy.watch()["classes"]), "nothing was answered yet"


def test_what_a_context_left_behind_is_put_back():
    """An interruption between registering a hook and the `try` that would remove it."""
    adapter, twin = made(), made()
    learn = adapter.method.adapt
    layer = next(m for m in adapter.method.network.modules() if isinstance(m, torch.nn.BatchNorm2d))

    def leaves_things(x, out, verdict):
        learn(x, out, verdict)
        layer.register_forward_hook(lambda *args: args[2] * 2)
        layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        layer.training = True
        layer.running_mean = None
        raise KeyboardInterrupt

    adapter.method.adapt = leaves_things
    with pytest.raises(KeyboardInterrupt):
        adapter(BATCHES[0])
    adapter.method.adapt = learn
    assert not layer.training
    for x in BATCHES[:2]:
        assert torch.equal(adapter(x).scores, twin(x).scores)


def test_one_value_far_off_is_enough():
    """A pixel ten times the range away hardly moves the mean of its channel."""
    x = WORLD.x[:3].clone()
    x[1, 0, 2, 2] = 10 * float(WORLD.x.max() - WORLD.x.min())
    assert implausible_inputs(x, WORLD.source).tolist() == [False, True, False]
    x[1, 0, 2, 2] *= -1
    assert implausible_inputs(x, WORLD.source).tolist() == [False, True, False]
    shifted = WORLD.x[:3] + torch.tensor([0.0, 60.0, 0.0])[:, None, None, None] * WORLD.source.input_std
    assert implausible_inputs(shifted, WORLD.source).tolist() == [False, True, False]


def test_cosines_belong_to_their_prototypes():
    one, other = torch.eye(4)[:2], torch.eye(4)[2:]
    out = Forward(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.zeros(1, 2))
    assert out.cosines(one).tolist() == [[1.0, 0.0]]
    assert out.cosines(other).tolist() == [[0.0, 0.0]]
    assert out.cosines(one) is out.cosines(one), "computed once"


def test_features_far_too_long_are_left_out():
    """The input is ordinary, what the network makes of it is not: one sample of a batch, not the batch as a whole."""
    features = WORLD.source.class_means[torch.arange(40) % CLASSES].clone()
    assert not implausible_features(features, WORLD.source).any()
    assert not implausible_features(features * 1e6, WORLD.source).any(), "all alike: statistics of an odd batch"
    features[3] *= 1e6
    features[5, 0] = torch.inf
    assert implausible_features(features, WORLD.source).nonzero().flatten().tolist() == [3, 5]
    assert implausible_features(torch.full((4, 12), torch.inf), WORLD.source).all()
    assert not implausible_features(features[:1], WORLD.source).any()


def test_a_sparse_batch_is_refused():
    with pytest.raises(TypeError, match=r"Expected a dense batch, got one in torch\.sparse_coo"):
        made()(BATCHES[0].to_sparse())


def test_freed_memory_is_given_back_now_and_then(monkeypatch):
    given = []
    monkeypatch.setattr("owttt.adapter.adapter.give_back_freed_memory", lambda: given.append(1))
    adapter = made("test")
    for _ in range(3 * TIDY // len(BATCHES[0]) + 1):
        adapter(BATCHES[0])
    assert len(given) == 3


@pytest.mark.parametrize("method", METHODS)
def test_answers_that_come_first_are_those_of_calls(method):
    """Whatever comes next waits: answers, states and files are the same, bit for bit."""
    adapter, twin = made(method), made(method)
    for number, x in enumerate(BATCHES):
        early, late = adapter.predict_then_learn(x), twin(x)
        assert torch.equal(early.scores, late.scores)
        assert torch.equal(early.labels, late.labels)
        if number % 3 == 0:
            assert torch.equal(adapter.predict(x).scores, twin.predict(x).scores)
    adapter.settle()
    assert same(whole(adapter), whole(twin))
    assert adapter._log.batches == len(BATCHES)


def test_the_answer_is_there_before_it_is_learned(monkeypatch):
    adapter = made()
    learn, gate, began = adapter.method.adapt, threading.Event(), threading.Event()

    def waits(x, out, verdict):
        began.set()
        assert gate.wait(10)
        learn(x, out, verdict)

    monkeypatch.setattr(adapter.method, "adapt", waits)
    assert len(adapter.predict_then_learn(BATCHES[0])) == len(BATCHES[0])
    assert began.wait(10)
    assert adapter._log.batches == 0, "it still learns"
    gate.set()
    adapter.settle()
    assert adapter._log.batches == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda adapter: adapter.watch(),
        lambda adapter: adapter.state_dict(),
        lambda adapter: adapter.load_state_dict({}, strict=False),
        lambda adapter: adapter.to("cpu"),
    ],
    ids=["watch", "state_dict", "load_state_dict", "to"],
)
def test_whoever_uses_an_adapter_waits_until_it_has_learned(monkeypatch, use):
    adapter, twin = made(), made()
    gate, learn = threading.Event(), adapter.method.adapt

    def waits(x, out, verdict):
        assert gate.wait(10)
        learn(x, out, verdict)

    monkeypatch.setattr(adapter.method, "adapt", waits)
    adapter.predict_then_learn(BATCHES[0]), twin(BATCHES[0])
    user = threading.Thread(target=use, args=(adapter,))
    user.start()
    user.join(0.05)
    assert user.is_alive(), "it still learns"
    gate.set()
    user.join(10)
    assert not user.is_alive()
    assert same(whole(adapter), whole(twin))


def test_what_learning_runs_may_watch_the_adapter_and_nothing_else(monkeypatch):
    adapter, twin = made(), made()
    learn, seen = adapter.method.adapt, []

    def looks(x, out, verdict):
        seen.extend((adapter.watch(), adapter.state_dict()))
        for use in (adapter, adapter.predict, lambda x: adapter.half()):
            with pytest.raises(RuntimeError, match="is learning"):
                use(x)
        learn(x, out, verdict)

    monkeypatch.setattr(adapter.method, "adapt", looks)
    adapter.predict_then_learn(BATCHES[0]), twin(BATCHES[0])
    adapter.settle()
    assert len(seen) == 2
    assert same(whole(adapter), whole(twin))


def test_reading_leaves_the_error_of_learning_to_the_next_call(monkeypatch):
    adapter = made()
    monkeypatch.setattr(adapter.method, "adapt", lambda x, out, verdict: 1 / 0)
    adapter.predict_then_learn(BATCHES[0])
    adapter.watch(), adapter.state_dict()
    with pytest.raises(ZeroDivisionError):
        adapter(BATCHES[0])


def test_whoever_gives_up_waiting_leaves_the_work_to_be_waited_for():
    work, gate = Background(), threading.Event()
    work.run(lambda: gate.wait(10))
    for error in (TimeoutError, SystemExit):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(work._work, "result", Mock(side_effect=error))
            with pytest.raises(error):
                work.wait()
    assert work._work is not None
    gate.set()
    work.wait()
    assert work._work is None


def test_what_was_chosen_cannot_be_changed():
    for name in ("order", "classifier", "classes", "guard"):
        with pytest.raises(AttributeError):
            setattr(made(), name, None)


def test_an_error_while_learning_comes_with_the_next_call(monkeypatch):
    adapter, twin = made(), made()
    adapter(BATCHES[0]), twin(BATCHES[0])

    def fails(x, out, verdict):
        raise RuntimeError("in the background")

    with monkeypatch.context() as patched:
        patched.setattr(adapter.method, "adapt", fails)
        adapter.predict_then_learn(BATCHES[1])
        with pytest.raises(RuntimeError, match="in the background"):
            adapter.predict(BATCHES[1])
    assert same(whole(adapter), whole(twin)), "as before the batch"
    assert torch.equal(adapter(BATCHES[2]).scores, twin(BATCHES[2]).scores), "and it is raised once"
    with pytest.raises(ValueError, match="needs the order 'predict-then-adapt'"):
        made(order=ORDERS[1]).predict_then_learn(BATCHES[0])


def test_threads_that_do_not_wait_for_learning():
    adapter = made()
    threads = [threading.Thread(target=lambda: [adapter.predict_then_learn(x) for x in BATCHES[:4]]) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    adapter.settle()
    assert adapter._log.batches == 16
    assert not state.not_finite(whole(adapter))
    assert copy.deepcopy(adapter).predict(BATCHES[0]).labels.shape == adapter.predict(BATCHES[0]).labels.shape


class Fragile(Method):
    """Cannot learn from a sample whose first pixel is 0.123: its state is not finite then, or it raises."""

    name = "fragile"
    raises = False

    def setup(self):
        self.register_buffer("steps", torch.zeros(()))

    def adapt(self, x, out, verdict):
        self.steps += 1
        if bool((x[:, 0, 0, 0] == 0.123).any()):
            if self.raises:
                raise RuntimeError("one sample is too much for it")
            self.steps += math.nan


class Raising(Fragile):
    raises = True


@pytest.mark.filterwarnings("ignore:Batch 7")
@pytest.mark.parametrize("method", [Fragile, Raising])
def test_a_gathered_sample_that_cannot_be_learned_from_is_not_tried_forever(method):
    x = torch.cat(BATCHES)[:280].clone()
    x[20, 0, 0, 0] = 0.123
    adapter = wrap(WORLD.model, method(), source=WORLD.source)
    failed = 0
    for part in x.split(8):
        try:
            failed += not adapter(part).learned
        except RuntimeError:
            failed += 1
    assert failed == (2 if method.raises else 1)
    assert int(adapter.method.steps) == 3
    assert len(adapter.events) == (0 if method.raises else 1)


def test_only_what_was_gathered_for_a_step_is_dropped_when_it_fails(tmp_path):
    """Large batches fail, or not, without any of it; a restored state begins with no failures."""
    x = torch.cat(BATCHES)[:280].clone()
    bad = x[:80].clone()
    bad[0, 0, 0, 0] = 0.123
    adapter, twin = (wrap(WORLD.model, Raising(), source=WORLD.source) for _ in range(2))
    adapter(x[:40]), twin(x[:40])
    adapter.save(tmp_path / "state.safetensors")
    for _ in range(3):
        with pytest.raises(RuntimeError):
            adapter(bad)
    adapter(x[40:48]), twin(x[40:48])
    assert same(whole(adapter), whole(twin))

    poisoned = x[:60].clone()
    poisoned[0, 0, 0, 0] = 0.123
    adapter.reset()
    adapter(poisoned)
    failures = 0
    for start in range(60, 100, 8):
        adapter(x[:80])
        try:
            adapter(x[start : start + 8])
        except RuntimeError:
            failures += 1
    assert failures == 2, "large batches in between change nothing"
    adapter._tries._failures = 2
    adapter.restore(tmp_path / "state.safetensors"), twin.restore(tmp_path / "state.safetensors")
    for start in range(100, 140, 8):
        adapter(x[start : start + 8]), twin(x[start : start + 8])
    assert same(whole(adapter), whole(twin))


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_prediction_leaves_nothing_behind(method, monkeypatch):
    """An interruption right after a hook was registered, before the `try` that would remove it."""
    adapter, twin = made(method, preset=None), made(method, preset=None)
    register = torch.nn.Module.register_forward_pre_hook

    def interrupted(self, hook, **options):
        register(self, hook, **options)
        raise KeyboardInterrupt

    x = torch.cat(BATCHES)[:200]
    monkeypatch.setattr(torch.nn.Module, "register_forward_pre_hook", interrupted)
    with pytest.raises(KeyboardInterrupt):
        adapter.predict(x)
    monkeypatch.undo()
    for part in adapter.modules():
        assert not part._forward_pre_hooks
        assert not part._forward_pre_hooks_with_kwargs
    assert torch.equal(adapter(x).scores, twin(x).scores)


class Overflowing(torch.nn.Module):
    """Gives infinity for an all-white picture."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        white = (x == 1).flatten(1).all(dim=1)
        return self.inner(torch.where(white[:, None, None, None], torch.inf, x))


@pytest.mark.parametrize("method", METHODS)
def test_one_picture_that_overflows_inside_the_network_is_an_outlier_alone(method):
    model = Overflowing(WORLD.model)
    source = SourceStats.fit(model, [(WORLD.x, WORLD.y)], CLASSES, progress=False)
    adapter = wrap(model, method, source=source)
    x = torch.cat(BATCHES)[:200].clone()
    x[5] = 1.0
    with pytest.warns(UserWarning, match="1 of 200 samples are nothing like the source data"):
        out = adapter(x)
    assert out.outliers.nonzero().flatten().tolist() == [5]
    assert int(out.known.sum()) > 20


class Standardized(torch.nn.Module):
    """Divides every picture by its own deviation: what has none is no number."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner((x - x.mean(dim=(1, 2, 3), keepdim=True)) / x.std(dim=(1, 2, 3), keepdim=True))


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_standardizes_its_pictures(method):
    model = Standardized(WORLD.model)
    source = SourceStats.fit(model, [(WORLD.x, WORLD.y)], CLASSES, progress=False)
    assert wrap(model, method, source=source)(torch.cat(BATCHES)[:200]).learned


class Bytes(torch.nn.Module):
    """Takes images in bytes, and scales them itself."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.float() / 32 - 4)


class Words(torch.nn.Module):
    """Takes six numbers of words; nothing in it is normalized."""

    def __init__(self):
        super().__init__()
        self.embedding, self.fc = torch.nn.Embedding(50, 16), torch.nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.fc(self.embedding(x).mean(dim=1))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["bytes", "words"])
def test_integers_are_taken(method, kind):
    torch.manual_seed(0)
    if kind == "bytes":
        model, x = Bytes(WORLD.model), (32 * (WORLD.x + 4)).clamp(0, 255).to(torch.uint8)
    elif method in ("bn", "tent"):
        pytest.skip("these need normalization layers")
    else:
        model, x = Words().eval(), torch.randint(50, (240, 6))
    source = SourceStats.fit(model, [(x, WORLD.y)], CLASSES, progress=False)
    adapter = wrap(model, method, source=source)
    out = adapter(x[:200])
    assert out.learned
    assert not out.outliers.any()
    assert adapter(x[:3]).learned


def test_the_guard_looks_at_inputs_of_any_precision():
    z = WORLD.x[:100].clone()
    z[3] *= 255
    assert implausible_inputs(z.double(), WORLD.source).nonzero().flatten().tolist() == [3]
    assert implausible_inputs(z.bfloat16(), WORLD.source).nonzero().flatten().tolist() == [3]


def test_a_constant_channel_of_the_source_may_vary_a_little():
    x = torch.rand(200, 2, 4, 4)
    x[:, 1] = 1.0
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32, CLASSES))
    source = SourceStats.fit(model, [(x, torch.arange(200) % CLASSES)], CLASSES, progress=False)
    x[:, 1] = 0.999
    assert not implausible_inputs(x, source).any()
    x[7, 1] = 0.5
    assert implausible_inputs(x, source).nonzero().flatten().tolist() == [7]
