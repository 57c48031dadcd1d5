"""σ_k for torch.distributions: onto the capped simplex, one to one where pinned, with the right volume."""

import pytest
import torch
from torch.distributions import Normal, TransformedDistribution, biject_to, transform_to

import khot
from khot.constraints import capped_simplex
from strategies.random_scores import scores


@pytest.mark.parametrize("k", [1, 2, 3.5])
def test_onto_the_capped_simplex_and_back(k):
    x = scores(5, 6)
    transform = transform_to(capped_simplex(k))
    y = transform(x)
    assert capped_simplex(k).check(y).all()
    torch.testing.assert_close(y, khot.sigmoid_topk(x, k))
    torch.testing.assert_close(transform(transform.inv(y)), y)


@pytest.mark.parametrize("k", [1, 2, 3.5])
def test_pinned_is_one_to_one(k):
    x = scores(5, 5)
    transform = biject_to(capped_simplex(k))
    y = transform(x)
    assert y.shape == transform.forward_shape(x.shape) == (5, 6)
    assert transform.inverse_shape(y.shape) == (5, 5)
    assert capped_simplex(k).check(y).all()
    torch.testing.assert_close(transform.inv(y), x)


@pytest.mark.parametrize("k", [1, 3.5])
def test_volume_by_the_determinant(k):
    transform = biject_to(capped_simplex(k))
    for x in scores(4, 5):
        jacobian = torch.func.jacrev(lambda x: transform(x)[:-1])(x)
        found = transform.log_abs_det_jacobian(x, transform(x))
        torch.testing.assert_close(found, torch.linalg.slogdet(jacobian).logabsdet)


def test_a_density_on_the_capped_simplex():
    # k = 1 and n = 2: y is σ(x/2); its density at y is N(2 logit y) · 2/(y(1 − y)).
    base = torch.distributions.Independent(Normal(torch.zeros(1).double(), 1.0), 1)
    density = TransformedDistribution(base, [biject_to(capped_simplex(1))])
    y = torch.tensor([0.3, 0.7], dtype=torch.float64)
    x = 2 * torch.logit(y[0])
    expected = Normal(0.0, 1.0).log_prob(x) + torch.log(2 / (y[0] * y[1]))
    torch.testing.assert_close(density.log_prob(y), expected)


def test_equality_and_wrong_sums():
    assert transform_to(capped_simplex(2)) == transform_to(capped_simplex(2))
    assert transform_to(capped_simplex(2)) != transform_to(capped_simplex(3))
    assert transform_to(capped_simplex(2)) != biject_to(capped_simplex(2))
    with pytest.raises(ValueError, match="0 <= k <= n = 3"):
        transform_to(capped_simplex(4))(scores(3))
