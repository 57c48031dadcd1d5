"""Derivatives: gradcheck, the score, implicit gradients in tangent directions, straight-through."""

import math

import pytest
import torch

import khot
from khot.designs import ConditionalPoisson, KHotCategoricalStraightThrough, Systematic, TreePivotal
from strategies.design_examples import CLOSED, probabilities, subsets
from strategies.quick_run import costly
from strategies.random_scores import scores


@pytest.mark.parametrize("design", CLOSED)
@pytest.mark.parametrize(("n", "k"), [costly(4, 2), (5, 1), costly(6, 1), costly(6, 5), costly(7, 3), (5, 3)])
def test_gradcheck_in_the_logits(design, n, k):
    theta = scores(n).requires_grad_()
    likely = design(k, scores=theta).mode.detach()

    def values(x):
        made = design(k, scores=x)
        return made.log_prob(likely), made.mean, made.entropy(), made.joint_inclusion

    assert torch.autograd.gradcheck(values, theta)


def test_gradgradcheck_of_conditional_poisson():
    theta = scores(6).requires_grad_()
    x = subsets(6, 3)[4]
    assert torch.autograd.gradgradcheck(
        lambda t: (ConditionalPoisson(3, logits=t).log_prob(x), ConditionalPoisson(3, logits=t).entropy()),
        theta,
    )


@pytest.mark.parametrize(("n", "k"), [(150, 120), (260, 130)])
def test_the_product_tree_has_the_gradient_of_its_polynomial(n, k):
    """π = ∇A by central differences, in the part of the code that multiplies by FFT too."""
    theta = scores(n)
    mean = ConditionalPoisson(k, logits=theta).mean
    for i in (0, n // 2, n - 1):
        step = torch.zeros(n, dtype=torch.float64)
        step[i] = 1e-4
        up, down = (ConditionalPoisson(k, logits=theta + s * step).log_normalizer for s in (1, -1))
        assert abs((up - down) / 2e-4 - mean[i]) < 1e-6
    assert abs(mean.sum() - k) < 1e-9


@pytest.mark.parametrize("design", [TreePivotal, Systematic, ConditionalPoisson])
def test_gradients_in_probs_along_tangents(design):
    """Directions with sum 0: the only ones in which π can move."""
    n, k = 6, 3
    pi = probabilities(n, k).requires_grad_()
    x = design(k, probs=pi.detach()).mode
    directions = torch.linalg.qr(torch.cat([torch.ones(n, 1), torch.eye(n)[:, 1:]], -1).double())[0][:, 1:]
    for f in (lambda p: design(k, probs=p).log_prob(x), lambda p: design(k, probs=p).entropy()):
        (grad,) = torch.autograd.grad(f(pi), pi)
        for v in directions.T:
            slope = (f(pi.detach() + 1e-5 * v) - f(pi.detach() - 1e-5 * v)) / 2e-5
            assert abs(slope - grad @ v) < 1e-6


def test_second_derivatives_in_probs():
    n, k = 5, 2
    pi = probabilities(n, k).requires_grad_()
    x = subsets(n, k)[3]
    v = torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0], dtype=torch.float64)

    def slope(p):
        (grad,) = torch.autograd.grad(ConditionalPoisson(k, probs=p).log_prob(x), p, create_graph=True)
        return grad @ v

    (second,) = torch.autograd.grad(slope(pi), pi)
    up, down = ((pi.detach() + s * 1e-5 * v).requires_grad_() for s in (1, -1))
    assert abs((slope(up) - slope(down)) / 2e-5 - second @ v) < 1e-4


@pytest.mark.parametrize("design", CLOSED)
def test_the_score_has_mean_zero(design):
    theta = scores(6).requires_grad_()
    p = design(3, scores=theta).log_prob(subsets(6, 3)).exp()
    possible = p > 0
    made = design(3, scores=theta)
    total = (p.detach()[possible] * made.log_prob(subsets(6, 3)[possible])).sum()
    (grad,) = torch.autograd.grad(total, theta)
    assert grad.abs().max() < 1e-12


def test_torch_func():
    theta = torch.stack([scores(5, seed=seed) for seed in range(3)])

    def log_prob(t):
        return ConditionalPoisson(2, logits=t, validate_args=False).log_prob(subsets(5, 2)[1])

    each = torch.stack([torch.autograd.functional.jacobian(log_prob, t) for t in theta])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(log_prob))(theta), each)


@pytest.mark.parametrize("design", CLOSED)
def test_no_nan_at_the_edges(design):
    for logits in (
        [1e30, 0.0, 0.0, -1e30],
        [0.0] * 4,
        [math.inf, 0.0, 0.0, -math.inf],
        [500.0, 0.0, 0.0, -500],
    ):
        theta = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
        made = design(2, scores=theta)
        values = made.log_prob(made.mode) + made.entropy() + made.mean.sum() + made.joint_inclusion.sum()
        assert values.isfinite()
        assert torch.autograd.grad(values, theta)[0].isfinite().all()


@pytest.mark.parametrize("scale", [costly(1.0), 10.0, costly(30.0), 100.0])
def test_weights_from_inclusion_beside_units_that_are_nearly_settled(scale):
    """Their π(θ) has no digits left, which must not spoil the weights of the others."""
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        n = int(torch.randint(3, 40, (1,), generator=generator))
        k = int(torch.randint(1, n, (1,), generator=generator))
        pi = khot.sigmoid_topk(scale * torch.randn(n, generator=generator, dtype=torch.float64), k)
        theta = ConditionalPoisson(k, probs=pi).natural_parameters
        assert (ConditionalPoisson(k, logits=theta).mean - pi).abs().max() < 1e-10


def test_gradients_in_scores_beside_units_that_are_nearly_settled():
    """Against the derivative of π by differences of the solve, in the directions that matter."""
    x = torch.tensor([40.0, 3.0, 0.0, -1.0, -30.0, 15.0], dtype=torch.float64, requires_grad=True)
    chosen = torch.tensor([1.0, 1, 0, 0, 0, 1], dtype=torch.float64)

    def f(scores):
        made = ConditionalPoisson(3, scores=scores)
        return made.log_prob(chosen) + made.entropy()

    (gradient,) = torch.autograd.grad(f(x), x)
    with torch.no_grad():
        steps = 1e-5 * torch.eye(6, dtype=torch.float64)
        slopes = torch.stack([(f(x + d) - f(x - d)) / 2e-5 for d in steps])
    torch.testing.assert_close(gradient, slopes, rtol=1e-5, atol=1e-7)


def test_weights_from_inclusion_on_hard_cases():
    for n, k, spread in (
        (100, 10, 4.0),
        (1000, 10, 2.0),
        (20, 19, 2.0),
        (20, 2, 3.0),
        (50, 25, 6.0),
        (3, 2, 5.0),
    ):
        pi = probabilities(n, k, 1, spread)
        found = ConditionalPoisson(k, logits=ConditionalPoisson(k, probs=pi).natural_parameters).mean
        assert ((found - pi).abs() / (pi * (1 - pi) + 1e-4)).max() < 1e-9


def test_straight_through():
    theta = scores(5).requires_grad_()
    design = KHotCategoricalStraightThrough(2, logits=theta)
    assert design.has_rsample
    x = design.rsample((3,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(x.detach(), design.sample((3,), generator=torch.Generator().manual_seed(0)))
    v = scores(5, seed=1)
    (through,) = torch.autograd.grad(x[0] @ v, theta)
    torch.testing.assert_close(through, ConditionalPoisson(2, logits=theta.detach()).covariance_matrix @ v)
