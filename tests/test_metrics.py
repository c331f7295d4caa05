import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from owttt import UNKNOWN, OpenWorldMetrics, Prediction
from owttt.functional import auroc, expected_calibration_error, fpr_at_tpr, oscr
from tests import reference


def answer(labels, scores, threshold, logits):
    """A prediction whose confidence is that of its logits."""
    confidence, closed = logits.softmax(dim=1).max(dim=1)
    return Prediction(labels, scores, threshold, logits, closed, confidence)


def random_run(seed, ties=False, n=200, classes=5):
    random = np.random.default_rng(seed)
    y = random.integers(-2, classes + 3, n)
    score = random.random(n) + 0.4 * ((y < 0) | (y >= classes))
    score = score.round(1) if ties else score
    logits = random.normal(size=(n, classes))
    logits[np.arange(n), np.clip(y, 0, classes - 1)] += 1.5
    threshold = 0.8
    label = np.where(score >= threshold, UNKNOWN, logits.argmax(axis=1))
    return (
        answer(*(torch.tensor(v) for v in (label, score, threshold, logits))),
        torch.tensor(y),
        (y < 0) | (y >= classes),
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ties", [False, True])
def test_every_metric_equals_an_independent_reference(seed, ties):
    out, y, unknown = random_run(seed, ties)
    metrics = OpenWorldMetrics(5)
    for rows in torch.arange(len(y)).split(33):
        metrics.update(answer(out.labels[rows], out.scores[rows], out.threshold, out.logits[rows]), y[rows])
    found = metrics.compute()

    label, score, truth = out.labels.tolist(), out.scores.tolist(), y.tolist()
    closed = out.logits.argmax(dim=1).tolist()
    known = [i for i in range(len(truth)) if not unknown[i]]
    others = [i for i in range(len(truth)) if unknown[i]]
    acc_s = sum(label[i] == truth[i] for i in known) / len(known)
    acc_n = sum(label[i] == UNKNOWN for i in others) / len(others)
    correct = [closed[i] == truth[i] for i in range(len(truth))]
    acc = sum(correct[i] for i in known) / len(known)
    area = roc_auc_score(unknown, score)
    expected = {
        "acc_s": acc_s,
        "acc_n": acc_n,
        "acc_h": 2 * acc_s * acc_n / (acc_s + acc_n),
        "acc_closed": acc,
        "known_rejected": sum(label[i] == UNKNOWN for i in known) / len(known),
        "auroc": area,
        "fpr95_unknown_positive": reference.fpr_at_tpr(score, unknown.tolist(), 0.95),
        "fpr95_known_positive": reference.fpr_at_tpr([-s for s in score], (~unknown).tolist(), 0.95),
        "oscr": reference.oscr(score, correct, unknown.tolist()),
        "acc_h_auroc": 2 * acc * area / (acc + area),
        "n_known": len(known),
        "n_unknown": len(others),
    }
    assert found == pytest.approx(expected | {"ece": found["ece"]})
    assert found["ece"] == pytest.approx(literal_ece(out.logits, y, known))


def literal_ece(logits, y, known, bins=15):
    total = 0.0
    rows = [(float(logits[i].softmax(dim=0).max()), int(logits[i].argmax()) == int(y[i])) for i in known]
    for b in range(bins):
        members = [(c, r) for c, r in rows if b / bins <= c < (b + 1) / bins or (b == bins - 1 and c == 1)]
        if members:
            gap = sum(r for _, r in members) / len(members) - sum(c for c, _ in members) / len(members)
            total += len(members) / len(rows) * abs(gap)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_auroc_fpr_and_oscr_against_sklearn_and_loops(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 60))
    scores = torch.tensor(random.integers(0, 12, n) / 4)
    positive = torch.tensor(random.random(n) < 0.4)
    positive[0], positive[1] = True, False
    assert float(auroc(scores, positive)) == pytest.approx(reference.auroc(scores.tolist(), positive.tolist()))
    fpr, tpr, _ = roc_curve(positive, scores, drop_intermediate=False)
    assert float(fpr_at_tpr(scores, positive)) == pytest.approx(fpr[np.argmax(tpr >= 0.95 - 1e-12)])
    correct = torch.tensor(random.random(n) < 0.7)
    expected = reference.oscr(scores.tolist(), correct.tolist(), positive.tolist())
    assert float(oscr(scores, correct, positive)) == pytest.approx(expected)


def test_a_clean_stream_says_what_it_cannot_tell():
    out, y, unknown = random_run(0)
    metrics = OpenWorldMetrics(5)
    rows = torch.tensor(np.flatnonzero(~unknown))
    metrics.update(answer(out.labels[rows], out.scores[rows], out.threshold, out.logits[rows]), y[rows])
    found = metrics.compute()
    assert 0 < found["acc_s"] < 1
    assert all(math.isnan(found[name]) for name in ("acc_n", "acc_h", "auroc", "oscr", "fpr95_unknown_positive"))
    assert math.isnan(float(expected_calibration_error(torch.zeros(0), torch.zeros(0, dtype=torch.bool))))


def test_nothing_rejected_and_nothing_right_is_zero_not_nan():
    metrics = OpenWorldMetrics(2)
    out = answer(torch.tensor([1, 1]), torch.tensor([0.1, 0.2]), torch.tensor(1.0), torch.tensor([[0.0, 1.0]] * 2))
    metrics.update(out, torch.tensor([0, 5]))
    assert metrics.compute()["acc_h"] == 0
    metrics.reset()
    assert metrics.compute()["n_known"] == 0


def test_a_promoted_class_is_none_of_the_known_ones():
    metrics = OpenWorldMetrics(2)
    logits = torch.tensor([[2.0, 1.0, 9.0], [0.0, 1.0, 9.0]])
    out = answer(torch.tensor([2, 2]), torch.tensor([0.1, 0.2]), torch.tensor(1.0), logits)
    metrics.update(replace(out, closed=torch.tensor([0, 1])), torch.tensor([0, 5]))
    found = metrics.compute()
    assert (found["acc_s"], found["acc_n"], found["acc_closed"], found["known_rejected"]) == (0, 1, 1, 1)


def test_wrong_shapes_are_told():
    out, y, _ = random_run(0)
    with pytest.raises(ValueError, match=r"labels of shape \(200,\), got \(199,\)"):
        OpenWorldMetrics(5).update(out, y[1:])
    with pytest.raises(ValueError, match="logits of 7 classes, got 5"):
        OpenWorldMetrics(7).update(out, y)
    with pytest.raises(ValueError, match="at least 1"):
        OpenWorldMetrics(0)


def test_counting_batch_by_batch_is_counting_all():
    out, y, _ = random_run(3)
    whole, parts = OpenWorldMetrics(5), OpenWorldMetrics(5)
    whole.update(out, y)
    for rows in torch.arange(len(y)).split(7):
        parts.update(answer(out.labels[rows], out.scores[rows], out.threshold, out.logits[rows]), y[rows])
        assert parts.accuracies().items() <= parts.compute().items()
    assert parts.compute() == pytest.approx(whole.compute())


def test_a_window_forgets():
    out, y, _ = random_run(4)
    sliding, last = OpenWorldMetrics(5, window=50), OpenWorldMetrics(5)
    for rows in torch.arange(len(y)).split(33):
        sliding.update(answer(out.labels[rows], out.scores[rows], out.threshold, out.logits[rows]), y[rows])
    rows = torch.arange(len(y))[-50:]
    last.update(answer(out.labels[rows], out.scores[rows], out.threshold, out.logits[rows]), y[rows])
    assert sliding.compute() == pytest.approx(last.compute())
    assert sliding.compute()["n_known"] + sliding.compute()["n_unknown"] == 50
    with pytest.raises(ValueError, match="window must be at least 1 sample"):
        OpenWorldMetrics(5, window=0)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr("owttt.metrics.CAPACITY", 60)
    out, y, _ = random_run(5)
    metrics, whole = OpenWorldMetrics(5), OpenWorldMetrics(5)
    for rows in torch.arange(len(y)).split(25):
        metrics.update(answer(out.labels[rows], out.scores[rows], out.threshold, out.logits[rows]), y[rows])
        assert sum(rows.shape[1] for rows in metrics._rows) <= 60
    monkeypatch.undo()
    whole.update(out, y)
    for name in ("acc_s", "acc_n", "acc_h", "acc_closed", "known_rejected", "n_known"):
        assert metrics.compute()[name] == pytest.approx(whole.compute()[name]), "counts are of the whole stream"
    assert metrics.compute()["auroc"] != pytest.approx(whole.compute()["auroc"]), "ranks are of the last samples"


def test_labels_alone_and_one_batch_at_a_time():
    metrics = OpenWorldMetrics(3).to("cpu")
    first = metrics(torch.tensor([0, 1, -1, -1]), torch.tensor([0, 2, 1, 9]))
    assert (first["acc_s"], first["acc_n"], first["known_rejected"]) == (pytest.approx(1 / 3), 1, pytest.approx(1 / 3))
    second = metrics.forward(torch.tensor([2]), torch.tensor([2]))
    assert second["acc_s"] == 1, "of that batch alone"
    assert metrics.compute()["acc_s"] == 0.5
    assert math.isnan(metrics.compute()["auroc"])
    assert math.isnan(metrics.compute()["acc_closed"]), "labels alone do not say the best known class"
    with pytest.raises(ValueError, match="Expected labels of shape"):
        metrics.update(torch.tensor([1, 2]), torch.tensor([1]))


def test_labels_alone_that_left_the_window_are_forgotten():
    out, y, _ = random_run(6, n=40)
    metrics = OpenWorldMetrics(5, window=30)
    metrics.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    assert math.isnan(metrics.compute()["acc_closed"])
    metrics.update(out, y)
    assert not math.isnan(metrics.compute()["acc_closed"])
    assert not math.isnan(metrics.compute()["auroc"])
