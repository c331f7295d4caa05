"""Wrapping: from a classifier, its source statistics and choices to an adapter."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from owttt._utils.suggest import suggest
from owttt.adapter.adapter import ORDERS, Adapter
from owttt.adapter.answering import CLASSIFIERS, Classifier
from owttt.detector import (
    DEFAULT_SCORE,
    DEFAULT_THRESHOLD,
    Evidence,
    NamedScore,
    Score,
    Threshold,
    as_score,
    as_threshold,
    is_unit,
    source_scores,
)
from owttt.methods import DEFAULT_METHOD, find_method
from owttt.methods.base import Method
from owttt.methods.presets import preset_options
from owttt.network.features import FeatureFunction, same_features, uncompiled
from owttt.network.ranks import Ranks
from owttt.source import SourceStats, fingerprint
from owttt.types import PREDICT_THEN_ADAPT, Order

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@torch.inference_mode(False)
def wrap(
    model: nn.Module,
    method: str | Method | type[Method] = DEFAULT_METHOD,
    *,
    source: SourceStats,
    order: Order = PREDICT_THEN_ADAPT,
    score: str | Score | None = None,
    threshold: str | float | tuple[float, float] | Threshold | None = None,
    window: int = 512,
    classifier: Classifier = "prototypes",
    features: str | FeatureFunction | None = None,
    preset: str | None = None,
    classes: Sequence[str] | None = None,
    guard: bool = True,
    distributed: bool | ProcessGroup = False,
    **options: Any,
) -> Adapter:
    """Wrap a classifier so that calling it predicts, rejects and adapts. The model itself is copied, never touched.

    Args:
        model: Any classifier whose penultimate features `source` was fitted on.
        method: A name in `METHODS`, `package.module:Class`, a Method class, or a configured Method (then without
            `options`); "owttt+" by default, which is made to be left running, "owttt" is the paper's.
        source: What is known of the source data: `SourceStats.fit` or `.load`.
        order: "predict-then-adapt", causal, the paper's Algorithm 1; "adapt-then-predict", the authors' program.
        score: "cosine" (the paper's), "centered", "energy", "max-softmax", "joint" (cosine, residual and depth
            together: needs the statistics of known samples, which "owttt+" finds), `package.module:function`, or a
            callable; high = unknown. By default the method's: "joint" for "owttt+", else "cosine"; "cosine" with a
            `preset`.
        threshold: "evidence" (splits the window where there is evidence of unknown samples, else keeps to a budget of
            right answers to reject; `Evidence(budget=…)` sets it), "adaptive" (the paper's: Otsu, weighted),
            "adaptive-unweighted" (as printed there), "off", a number (fixed), a pair (adaptive, within bounds), or a
            callable on the window of scores. By default "evidence"; "adaptive" with a `preset`, and with a score of
            your own, which the statistics do not know.
        window: How many recent scores the threshold is computed from, N_m.
        classifier: "prototypes", the nearest class mean (the paper); "head", the model's own logits.
        features: Needed again only if `source` was fitted with a callable.
        preset: The paper's options for a benchmark, see `PRESETS`; `options` go on top. "paper" keeps to the methods'
            defaults, and like all presets to the paper's threshold and steps.
        classes: Names of the known classes, for `Prediction.names`.
        guard: Whether samples that are nothing like the source data are left out, and updates that are not finite or
            beyond reason taken back (see `owttt.adapter.guard`); without a `preset` also whether small batches are
            learned from together and in smaller steps, and a collapse ends in a new beginning (see
            `owttt.adapter.rails`).
        distributed: Whether all processes of torch.distributed (or of a group) share one stream: each calls its adapter
            with its part of a batch and gets the answers for it; passes are shared out, and all that is learned is the
            same on every rank (see `owttt.network.ranks`). They must wrap the same model in the same way.
        **options: Of the method.

    Returns:
        An adapter: call it with a batch and it answers with a `Prediction`.

    Raises:
        ValueError: The statistics belong to another model, a name or value is not one, or the method cannot adapt this
            network.
        TypeError: An option or a kind of argument does not exist.

    Example:
        >>> import torch, owttt
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> loader = [(torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 0, 1]))]
        >>> source = owttt.SourceStats.fit(model, loader, num_classes=2, progress=False)
        >>> adapter = owttt.wrap(model, source=source, classes=["cat", "dog"])
        >>> len(adapter(torch.randn(3, 4)).names)
        3
    """
    if order not in ORDERS:
        raise ValueError(f"order must be one of {list(ORDERS)}, got {order!r}.")
    if classifier not in CLASSIFIERS:
        raise ValueError(f"classifier must be one of {list(CLASSIFIERS)}, got {classifier!r}.")
    if not isinstance(source, SourceStats):
        raise TypeError(f"source must be SourceStats (SourceStats.fit or .load), got {type(source).__name__}.")
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ValueError(f"window must be a whole number of scores, at least 1, got {window!r}.")
    if classes is not None and len(classes) != source.num_classes:
        raise ValueError(f"The source statistics have {source.num_classes} classes, got {len(classes)} names.")
    if classes is not None and len({*classes, "unknown"}) <= len(classes):
        raise ValueError("Names of classes must differ from each other, and none may be 'unknown'.")
    model = uncompiled(model)
    found = fingerprint(model)
    if found != source.info.model:
        raise ValueError(
            f"The source statistics were fitted on another model (fingerprint {source.info.model[:12]}…, this one is "
            f"{found[:12]}…). Fit them on this model with SourceStats.fit, or pass the model they belong to; another "
            "dtype or a wrapper around it makes it another model."
        )
    unbound = make_method(method, preset, options)
    scoring = _score(unbound, score, DEFAULT_SCORE if preset else unbound.usual_score)
    network = same_features(copy.deepcopy(model), source.feature_point, source.info.head, features)
    network.watches = isinstance(scoring, NamedScore) and scoring.watches and source.depth_mean is not None
    if distributed is not False:
        network.ranks = Ranks(None if distributed is True else distributed)
    home = next((parameter.device for parameter in model.parameters()), source.mean.device)
    adapter = Adapter(
        unbound.bind(network, source.view().to(home), order),
        score=scoring,
        threshold=_threshold(threshold, scoring, source, "adaptive" if preset else DEFAULT_THRESHOLD),
        window=window,
        order=order,
        classifier=classifier,
        classes=None if classes is None else tuple(classes),
        guard=guard,
        rails=guard and preset is None,
    )
    if network.ranks is not None:
        _check_alike(adapter, network.ranks)
    return adapter


def _check_alike(adapter: Adapter, ranks: Ranks) -> None:
    """Raise on all ranks if one of them has wrapped another model, or this one differently."""
    mine = {**adapter.config, "model": adapter.method.source.info.model}
    for rank, theirs in enumerate(ranks.agree(mine)):
        different = sorted(name for name in mine if mine[name] != theirs.get(name))
        if different:
            pairs = "; ".join(f"{name}: there {theirs.get(name)!r}, here {mine[name]!r}" for name in different)
            raise ValueError(
                f"Rank {rank} wraps differently than rank {ranks.rank}, and cannot share its stream. {pairs}."
            )


def _threshold(
    threshold: str | float | tuple[float, float] | Threshold | None,
    score: Score,
    source: SourceStats,
    usual: str,
) -> Threshold:
    """Return the chosen threshold, or the usual one; one by evidence is told what source samples score."""
    if threshold is None:
        threshold = usual if source_scores(score, source) is not None else "adaptive"
    found = as_threshold(threshold, unit=is_unit(score))
    return found.bound(score, source) if isinstance(found, Evidence) else found


def _score(method: Method, score: str | Score | None, usual: str) -> Score:
    """Return the method's own score, or the chosen one, or the usual one; the first two at once are an error."""
    own = method.own_score
    if own is None:
        return as_score(usual if score is None else score)
    if score is not None and score != DEFAULT_SCORE:
        raise ValueError(
            f"With these options {method.name!r} scores by itself ({own.name}), and score={score!r} would have no "
            f"effect; leave it out, or turn that off: {own.way_out}."
        )
    return own


def make_method(method: str | Method | type[Method], preset: str | None, options: dict[str, Any]) -> Method:
    """Return a method that is not bound to a network yet, its options checked."""
    if isinstance(method, Method):
        if options or (preset and preset_options(preset, method.name)):
            raise ValueError(
                f"{type(method).__name__} is configured already; options and preset go to a name or a class."
            )
        return copy.deepcopy(method)
    kind = find_method(method) if isinstance(method, str) else method
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise TypeError(f"method must be a name, a Method or its class, got {kind!r}.")
    known = inspect.signature(kind).parameters
    wrong = sorted(set(options) - set(known))
    if wrong:
        hint = suggest(wrong[0], known)
        raise TypeError(f"Method {kind.name!r} has no option {wrong}; it takes {sorted(known)}. {hint}")
    for name, value in options.items():
        _check_option(kind.name, name, value, known[name])
    return kind(**(preset_options(preset, kind.name) if preset else {}) | options)


def _check_option(method: str, name: str, value: Any, parameter: inspect.Parameter) -> None:
    """Raise if an option that is a number, a truth or a word by default is something else."""
    default, annotation = parameter.default, str(parameter.annotation)
    kinds = {
        bool: (bool, "true or false"),
        int: (Integral, "a whole number"),
        float: (Real, "a number"),
        str: (str, "a word"),
    }
    kind, told = kinds.get(type(default), (object, ""))
    takes_none = "None" in annotation
    if value is None and takes_none:
        return
    if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
        raise TypeError(f"Option {name!r} of method {method!r} must be {told}, {default!r} by default; got {value!r}.")
