import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from owttt.functional import (
    Gaussian,
    add_ridge,
    alignment,
    covariance,
    gaussian_kl,
    ridge,
    running_gaussian,
    symmetric_kl,
    symmetric_kl_diagonal,
)
from tests import reference


def random_gaussian(seed, *batch, size=5):
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(*batch, size, size, generator=generator, dtype=torch.float64)
    mean = torch.randn(*batch, size, generator=generator, dtype=torch.float64)
    return Gaussian(mean, add_ridge(factor @ factor.mT, torch.tensor(0.1, dtype=torch.float64)))


def distribution(gaussian):
    return MultivariateNormal(gaussian.mean, gaussian.covariance)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_kl_equals_torch_distributions(batch):
    p, q = random_gaussian(1, *batch), random_gaussian(2, *batch)
    torch.testing.assert_close(gaussian_kl(p, q), kl_divergence(distribution(p), distribution(q)))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_symmetric_kl_is_both_directions(batch):
    p, q = random_gaussian(1, *batch), random_gaussian(2, *batch)
    both = kl_divergence(distribution(p), distribution(q)) + kl_divergence(distribution(q), distribution(p))
    torch.testing.assert_close(symmetric_kl(p, p.covariance.inverse(), q), both)


def test_symmetric_kl_of_variances():
    p, q = random_gaussian(1), random_gaussian(2)
    p, q = (Gaussian(g.mean, g.covariance.diagonal()) for g in (p, q))
    full = [Gaussian(g.mean, g.covariance.diag()) for g in (p, q)]
    expected = gaussian_kl(*full) + gaussian_kl(*reversed(full))
    torch.testing.assert_close(symmetric_kl_diagonal(p, q), expected)


@pytest.mark.parametrize(("number", "seen"), [(1, 1), (6, 6), (6, 20), (40, 5000)])
def test_alignment_is_the_distance_of_the_running_gaussian_and_so_is_its_gradient(number, seen):
    source, state = random_gaussian(1, size=5), random_gaussian(2, size=5)
    amount, counted = ridge(source.covariance), torch.tensor(seen)
    features = torch.randn(number, 5, dtype=torch.float64, requires_grad=True)
    target = running_gaussian(state, features, counted, 1280)
    literal = symmetric_kl(
        source, source.covariance.inverse(), Gaussian(target.mean, add_ridge(target.covariance, amount))
    )
    expected = torch.autograd.grad(3 * literal, features)[0]
    distance, found = alignment(features, state, counted, 1280, source, source.covariance.inverse(), amount)
    torch.testing.assert_close(distance, literal)
    torch.testing.assert_close(torch.autograd.grad(3 * distance, features)[0], expected)
    torch.testing.assert_close(found, target)
    assert not found.covariance.requires_grad


def test_gradients():
    source = random_gaussian(1, size=3)
    inverse = source.covariance.inverse()
    state = random_gaussian(2, size=3)

    def loss(features):
        target = running_gaussian(state, features, torch.tensor(20), 1280)
        amount = ridge(source.covariance)
        return symmetric_kl(source, inverse, Gaussian(target.mean, add_ridge(target.covariance, amount)))

    features = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (features,))
    p, q = random_gaussian(3, size=3), random_gaussian(4, size=3)
    means = [g.mean.clone().requires_grad_() for g in (p, q)]
    assert torch.autograd.gradcheck(
        lambda a, b: gaussian_kl(Gaussian(a, p.covariance), Gaussian(b, q.covariance)), tuple(means)
    )


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (7, 3, 20), (2000, 5, 3000), (1300,), (1, 1500, 1)])
@pytest.mark.parametrize("diagonal", [False, True])
def test_running_gaussian_equals_the_loop_and_stays_positive(sizes, diagonal):
    """More than `horizon` samples in a batch made the authors' covariance indefinite."""
    generator = torch.Generator().manual_seed(0)
    start = random_gaussian(1, size=4)
    slow = reference.RunningGaussian(start.mean, start.covariance, horizon=1280)
    fast = Gaussian(start.mean, start.covariance.diagonal()) if diagonal else start
    seen = 0
    for size in sizes:
        features = torch.randn(size, 4, generator=generator, dtype=torch.float64) * 3 + 1
        seen += size
        fast = running_gaussian(fast, features, torch.tensor(seen), 1280, diagonal)
        mean, cov = slow.update(features)
        torch.testing.assert_close(fast.mean, mean)
        torch.testing.assert_close(fast.covariance, cov.diagonal() if diagonal else cov)
        smallest = fast.covariance.min() if diagonal else torch.linalg.eigvalsh(fast.covariance).min()
        assert smallest >= -1e-12


def test_first_batch_gives_its_own_moments():
    features = torch.randn(50, 4, dtype=torch.float64)
    found = running_gaussian(random_gaussian(1, size=4), features, torch.tensor(50), 1280)
    torch.testing.assert_close(found.mean, features.mean(dim=0))
    torch.testing.assert_close(found.covariance, covariance(features))


def test_a_constant_source_still_has_an_inverse():
    nothing = torch.zeros(3, 3)
    assert torch.linalg.cholesky(add_ridge(nothing, ridge(nothing))).isfinite().all()
