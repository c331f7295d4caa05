"""Every method passes the contract; a method broken on purpose fails the check that is there for it."""

import math

import pytest
import torch
import torch.nn.functional as F

from owttt import METHODS, Forward, Method
from owttt.checks import CHECKS, batch_norm_network, check_method, make_world
from owttt.methods import OWTTT, Tent
from owttt.network.norm import batch_norms


@pytest.mark.parametrize("order", ["predict-then-adapt", "adapt-then-predict"])
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", METHODS)
def test_methods_keep_the_contract(method, check, order):
    CHECKS[check](method, order=order)


@pytest.mark.parametrize("score", ["centered", "energy", "max-softmax"])
def test_owttt_keeps_the_contract_with_every_score(score):
    check_method("owttt", score=score)


def test_instances_classes_and_options_are_checked_alike():
    check_method(Tent(lr=1e-2, optim="sgd"))
    check_method(OWTTT, keep_rate=1.0, threshold="adaptive-unweighted", classifier="head")
    for method in ("tent", "shot", "ttt++", "ttac"):
        check_method(method, prune=True)


class Learner(Method):
    """A sound method, to be broken below: entropy minimization of the whole backbone by plain SGD."""

    name = "learner"

    def setup(self):
        self.optimize_backbone(1e-3, 0.9)

    def loss(self, x, out, verdict):
        logits = self.network(x).logits
        return -(logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1).mean()

    def adapt(self, x, out, verdict):
        self.descend(self.loss(x, out, verdict))


class NeverAdapts(Learner):
    def adapt(self, x, out, verdict):
        pass


class LearnsWhilePredicting(Learner):
    def forward(self, x):
        with torch.no_grad():
            next(self.network.parameters()).mul_(0.999)
        return super().forward(x)


class RemembersOutsideItsState(Learner):
    def setup(self):
        super().setup()
        self.batches = 0

    def loss(self, x, out, verdict):
        self.batches += 1
        return super().loss(x, out, verdict) * self.batches


class DividesBySpread(Learner):
    def loss(self, x, out, verdict):
        return super().loss(x, out, verdict) / out.logits.var(dim=0, correction=0).mean()


class NeedsBothKinds(Learner):
    def loss(self, x, out, verdict):
        return super().loss(x[verdict.known], out, verdict) + super().loss(x[verdict.unknown], out, verdict)


class NeedsBatchNorm(Learner):
    def adapt(self, x, out, verdict):
        super().adapt(x, out, verdict)
        batch_norms(self.network)[0].running_mean.mul_(0.9)


class TakesRoots(Learner):
    def loss(self, x, out, verdict):
        return self.network(x).features.sqrt().mean() if out.features.min() < 0 else super().loss(x, out, verdict)


class ForgetsPrecision(Learner):
    def setup(self):
        super().setup()
        self.register_buffer("total", torch.zeros(self.source.mean.shape))

    def adapt(self, x, out, verdict):
        super().adapt(x, out, verdict)
        self.total += out.features.sum(dim=0).float()


class LeavesTorch(Learner):
    def loss(self, x, out, verdict):
        return super().loss(x, out, verdict) * float(out.features.detach().numpy().mean())


class Standardises(Learner):
    def loss(self, x, out, verdict):
        logits = self.network(x).logits
        return (logits / (logits - logits[:1]).square().sum()).mean() if len(x) > 1 else logits.mean()


class Gambles(Learner):
    def loss(self, x, out, verdict):
        return super().loss(x, out, verdict) * torch.rand(())


class AsksForLabels(Learner):
    def adapt(self, x, out, verdict, y=None):
        super().adapt(x, out, verdict)


class MovesTheSource(Learner):
    def adapt(self, x, out, verdict):
        super().adapt(x, out, verdict)
        self.source.prototypes.mul_(0.5)


class HidesItsOptions(Learner):
    def __init__(self, loss_function=F.relu):
        super().__init__()
        self.loss_function = loss_function


BROKEN = {
    "adapt_changes_state": NeverAdapts,
    "predict_changes_nothing": LearnsWhilePredicting,
    "reset_restores_everything": RemembersOutsideItsState,
    "saved_state_resumes": RemembersOutsideItsState,
    "any_batch_size": DividesBySpread,
    "one_sided_batches": NeedsBothKinds,
    "no_batch_norm": NeedsBatchNorm,
    "signed_features": TakesRoots,
    "double_precision": ForgetsPrecision,
    "mixed_precision": LeavesTorch,
    "constant_input": Standardises,
    "deterministic": Gambles,
    "sees_no_labels": AsksForLabels,
    "caller_is_untouched": MovesTheSource,
    "configuration_is_recorded": HidesItsOptions,
}


class Selects(Learner):
    """Learns from confident samples only, as an entropy filter does."""

    def adapt(self, x, out, verdict):
        sure = out.logits.softmax(dim=1).amax(dim=1) > 0.95
        if sure.any():
            super().adapt(x[sure], Forward(out.features[sure], out.logits[sure]), verdict)


class TakesNothing(Learner):
    def adapt(self, x, out, verdict):
        if out.logits.amax() > 1e9:
            super().adapt(x, out, verdict)


class RefusesWithoutAWord(Learner):
    def setup(self):
        if not batch_norms(self.network):
            raise ValueError("no.")
        super().setup()


def test_a_method_that_selects_passes():
    world = make_world(batch_norm_network)
    assert float(world.model.eval()(world.stream).detach().softmax(dim=1).amax()) < 0.95, (
        "it takes none of this network's"
    )
    CHECKS["adapt_changes_state"](Selects)
    with pytest.raises(AssertionError, match=r"it took none of 96: loosen its filter with options of check_method"):
        CHECKS["adapt_changes_state"](TakesNothing)


def test_a_refusal_must_say_why():
    with pytest.raises(AssertionError, match="without saying which method it is and what the network lacks"):
        CHECKS["no_batch_norm"](RefusesWithoutAWord)
    CHECKS["no_batch_norm"]("bn")


def test_the_sound_method_passes():
    check_method(Learner)


@pytest.mark.parametrize("check", CHECKS)
def test_a_broken_method_fails_the_check(check):
    with pytest.raises((AssertionError, RuntimeError, FloatingPointError, IndexError, TypeError)):
        CHECKS[check](BROKEN[check])
    CHECKS[check](Learner)
    with pytest.raises(AssertionError, match="^(" + "|".join(CHECKS) + "): "):
        check_method(BROKEN[check])


@pytest.mark.parametrize("check", ["signed_features", "constant_input"])
def test_a_detector_that_rejects_everything_fails(check, monkeypatch):
    """The released program returns 0 where nothing can be split."""
    rejecting = lambda scores, weighted, unit: scores.new_zeros(()) - math.inf  # noqa: E731
    monkeypatch.setattr("owttt.detector.otsu_threshold", rejecting)
    with pytest.raises(AssertionError, match="rejected"):
        CHECKS[check]("test")


def test_worlds_are_the_same_every_time():
    assert torch.equal(make_world(batch_norm_network).stream, make_world(batch_norm_network).stream)
