import math

import pytest
import torch
import torch.nn.functional as F

from owttt import functional
from tests import reference

LOGITS = torch.randn(9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
FEATURES = torch.randn(9, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
MEANS = torch.randn(5, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + 1


def test_entropy_and_information_maximization():
    rows = [float(reference.entropy(row)) for row in LOGITS]
    torch.testing.assert_close(functional.entropy(LOGITS).tolist(), rows)
    mean = LOGITS.softmax(dim=1).mean(dim=0)
    diversity = -sum(float(m) * math.log(float(m)) for m in mean)
    found = float(functional.information_maximization(LOGITS))
    torch.testing.assert_close(found, sum(rows) / 9 - diversity)


def test_certain_logits_have_finite_gradients():
    logits = torch.tensor([[200.0, 0.0], [300.0, 0.0]], requires_grad=True)
    (functional.information_maximization(logits) + functional.entropy(logits).mean()).backward()
    assert logits.grad.isfinite().all()


def test_scores():
    prototypes = F.normalize(MEANS, dim=1)
    mean = MEANS.mean(dim=0)
    for i, z in enumerate(FEATURES):
        cosines = [float(z @ m / (z.norm() * m.norm())) for m in MEANS]
        torch.testing.assert_close(float(functional.cosine_score(FEATURES, prototypes)[i]), 1 - max(cosines))
        centered = [float((z - mean) @ (m - mean) / ((z - mean).norm() * (m - mean).norm())) for m in MEANS]
        torch.testing.assert_close(float(functional.centered_score(FEATURES, MEANS, mean)[i]), 1 - max(centered))
    basis = functional.class_basis(MEANS, mean)
    assert basis.shape == (6, 4), "five means differ from their mean in four directions"
    for i, z in enumerate(FEATURES):
        best = torch.linalg.lstsq((MEANS - mean).T, (z - mean)[:, None], driver="gelsd").solution
        left = (z - mean) - ((MEANS - mean).T @ best)[:, 0]
        expected = float(left.square().sum() / (z - mean).square().sum())
        torch.testing.assert_close(float(functional.residual_score(FEATURES, basis, mean)[i]), expected)
    for i, row in enumerate(LOGITS):
        total = sum(math.exp(float(v)) for v in row)
        torch.testing.assert_close(float(functional.energy_score(LOGITS)[i]), -math.log(total))
        confidence = max(math.exp(float(v)) / total for v in row)
        torch.testing.assert_close(float(functional.max_softmax_score(LOGITS)[i]), 1 - confidence)


def test_a_zero_feature_scores_one():
    assert float(functional.cosine_score(torch.zeros(1, 6), F.normalize(torch.rand(3, 6), dim=1))) == 1


def test_half_precision_features_are_compared_in_single():
    similarity = functional.cosine_similarity(FEATURES.bfloat16(), F.normalize(MEANS.float(), dim=1))
    assert similarity.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        inside = functional.cosine_similarity(FEATURES.float(), F.normalize(MEANS.float(), dim=1))
    assert inside.dtype == torch.float32
    torch.testing.assert_close(
        inside, functional.cosine_similarity(FEATURES.float(), F.normalize(MEANS.float(), dim=1))
    )


def test_clustering_losses():
    similarity = torch.rand(7, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    nearest = torch.rand(7, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    known = unknown = 0.0
    for row, extra in zip(similarity.tolist(), nearest.tolist(), strict=True):
        known -= math.log(math.exp(max(row) / 0.1) / sum(math.exp(v / 0.1) for v in row)) / 7
        unknown -= math.log(math.exp(extra / 0.1) / sum(math.exp(v / 0.1) for v in [*row, extra])) / 7
    torch.testing.assert_close(float(functional.known_clustering(similarity, 0.1)), known)
    torch.testing.assert_close(float(functional.unknown_clustering(similarity, nearest, 0.1)), unknown)


def test_discrepancies():
    a, b = FEATURES[:6], FEATURES[3:]
    expected = sum((float(x) - float(y)) ** 2 for x, y in zip(a.flatten(), b.flatten(), strict=True))
    torch.testing.assert_close(float(functional.covariance_discrepancy(a, b)), expected / (4 * 36))
    torch.testing.assert_close(float(functional.mean_discrepancy(a, b)), expected / 36)


def test_supervised_contrastive_loss_is_the_loop():
    random = torch.Generator().manual_seed(0)
    z = torch.randn(9, 4, generator=random, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1, 0, 3, 2, 1])
    unit = [row / row.norm() for row in z.detach()]
    losses = []
    for i in range(9):
        positives = [p for p in range(9) if p != i and labels[p] == labels[i]]
        if positives:
            total = sum(math.exp(float(unit[i] @ unit[j]) / 0.1) for j in range(9) if j != i)
            terms = [math.log(math.exp(float(unit[i] @ unit[p]) / 0.1) / total) for p in positives]
            losses.append(-sum(terms) / len(terms))
    assert len(losses) == 8, "the sample that is alone in its class has no term"
    found = functional.supervised_contrastive(z, labels, 0.1)
    assert float(found.detach()) == pytest.approx(sum(losses) / 8)
    torch.autograd.backward(found)
    assert z.grad.isfinite().all()
    alone = functional.supervised_contrastive(z.detach()[:3], torch.tensor([0, 1, 2]), 0.1)
    assert float(alone) == 0, "no pair, no loss"


def test_logits_of_length_one():
    for row, found in zip(LOGITS.tolist(), functional.unit_logits(LOGITS, 0.04).tolist(), strict=True):
        length = math.sqrt(sum(value**2 for value in row))
        assert found == pytest.approx([value / length / 0.04 for value in row])
    assert functional.unit_logits(torch.zeros(1, 3), 0.04).tolist() == [[0, 0, 0]]


def test_depth_counts_squared_deviations_of_every_channel():
    middle, deviation = MEANS.mean(dim=0), MEANS.std(dim=0)
    for row, found in zip(FEATURES, functional.depth_score(FEATURES, middle, deviation), strict=True):
        squares = [float((value - m) / d) ** 2 for value, m, d in zip(row, middle, deviation, strict=True)]
        assert float(found) == pytest.approx(sum(squares) / len(squares))
    constant = torch.zeros(6, dtype=torch.float64)
    assert functional.depth_score(MEANS[:1], MEANS[0], constant).tolist() == [0.0], "no deviation, no difference"


def test_joint_terms_are_in_units_of_the_source_and_bounded():
    one, two = torch.tensor([0.1, 0.4, 9.0]), torch.tensor([1.0, 1.0, 1.0])
    of_one, of_two = torch.linspace(0, 1, 201), torch.full((201,), 1.0)
    expected = [(0.1 - 0.5) / 0.4, (0.4 - 0.5) / 0.4, 2.0]
    assert functional.joint_score([(one, of_one)]).tolist() == pytest.approx(expected)
    both = functional.joint_score([(one, of_one), (two, of_two)])
    assert both.tolist() == pytest.approx(expected), "a term of which the source has no spread does not blow up"
