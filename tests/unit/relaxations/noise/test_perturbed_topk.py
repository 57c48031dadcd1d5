"""perturbed_topk against closed forms and long runs. Seeds are fixed; bounds are 5 standard errors."""

import math

import pytest
import torch

import khot
from khot.relaxations.noise import perturbed


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def phi(v):
    """The standard normal distribution function."""
    return (1 + math.erf(v / math.sqrt(2))) / 2


def gradient(x, k, g, **settings):
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(khot.perturbed_topk(leaf, k, **settings), leaf, g)
    return grad


@pytest.mark.parametrize("tau", [0.3, 1.0, 4.0])
def test_two_scores_are_the_normal_distribution(tau):
    x, samples = torch.tensor([0.4, -0.1], dtype=torch.float64), 200_000
    y = khot.perturbed_topk(x, 1, temperature=tau, samples=samples, generator=seeded())
    expected = phi(0.5 / (tau * math.sqrt(2)))
    error = math.sqrt(expected * (1 - expected) / samples)
    assert abs(y[0].item() - expected) <= 5 * error


@pytest.mark.parametrize("tau", [0.3, 1.0, 4.0])
def test_the_gradient_of_two_scores_is_the_normal_density(tau):
    """Each of 400 estimates is unbiased, so their mean is the truth within 5 of its own standard errors."""
    x = torch.tensor([0.4, -0.1], dtype=torch.float64).expand(400, 2)
    g = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(400, 2)
    grad = gradient(x, 1, g, temperature=tau, samples=5, generator=seeded())
    width = tau * math.sqrt(2)
    expected = math.exp(-((0.5 / width) ** 2) / 2) / math.sqrt(2 * math.pi) / width
    mean, error = grad.mean(0), grad.std(0) / math.sqrt(400)
    assert (error < 0.2 * expected).all()
    assert abs(mean[0] - expected) <= 5 * error[0]
    assert abs(mean[1] + expected) <= 5 * error[1]


def test_gumbel_noise_and_one_place_is_softmax():
    x = torch.tensor([0.5, -0.2, 1.1, 0.0], dtype=torch.float64)
    tau, samples, rows = 0.7, 2_000, 200
    truth = torch.softmax(x / tau, -1)
    leaf = x.expand(rows, 4).clone().requires_grad_()
    y = khot.perturbed_topk(leaf, 1, temperature=tau, samples=samples, noise="gumbel", generator=seeded())
    error = (truth * (1 - truth) / (samples * rows)).sqrt()
    assert ((y.mean(0) - truth).abs() <= 5 * error).all()
    g = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    (grad,) = torch.autograd.grad(y, leaf, g.expand(rows, 4))
    expected = truth * (g - (truth * g).sum()) / tau
    assert ((grad.mean(0) - expected).abs() <= 5 * grad.std(0) / math.sqrt(rows)).all()
    assert (grad.std(0) / math.sqrt(rows) < 0.05).all()


@pytest.mark.parametrize("noise", ["normal", "gumbel"])
@pytest.mark.parametrize(
    "k", [pytest.param(1, marks=pytest.mark.full), 2, pytest.param(3, marks=pytest.mark.full)]
)
@pytest.mark.full
def test_the_gradient_is_the_finite_difference_of_a_long_run(k, noise):
    """The same noise at x + s and x − s, in n = 4: the whole Jacobian, not its diagonal alone."""
    x = torch.tensor([0.3, -0.4, 0.9, 0.1], dtype=torch.float64)
    samples, step = 400_000, 0.05
    settings = {"samples": samples, "noise": noise}
    unit = torch.eye(4, dtype=torch.float64)
    jacobian = torch.stack([gradient(x, k, g, generator=seeded(1), **settings) for g in unit])
    # Standard errors: at most 1/√S in the estimate; √(rate/(2 step S)) in the difference, rate < 1.
    bound = 5 * (samples**-0.5 + (2 * step * samples) ** -0.5) + step**2
    assert bound < 0.04
    for j, shift in enumerate(step * unit):
        up, down = (khot.perturbed_topk(x + s * shift, k, generator=seeded(2), **settings) for s in (1, -1))
        assert ((jacobian[:, j] - (up - down) / (2 * step)).abs() <= bound).all()


def test_the_gradient_in_the_temperature_is_the_finite_difference():
    x = torch.tensor([0.3, -0.4, 0.9, 0.1], dtype=torch.float64)
    tau = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    samples, g = 400_000, torch.tensor([1.0, 2.0, -1.0, 0.0], dtype=torch.float64)
    y = khot.perturbed_topk(x, 2, temperature=tau, samples=samples, generator=seeded(3))
    (grad,) = torch.autograd.grad(y, tau, g)
    up, down = (
        khot.perturbed_topk(x, 2, temperature=0.8 + s, samples=samples, generator=seeded(4))
        for s in (0.05, -0.05)
    )
    assert abs(grad - ((up - down) @ g) / 0.1) <= 0.04
    assert abs(grad) > 0.15


def test_the_estimate_is_unbiased_with_two_samples():
    """Two samples are the fewest: dividing by S instead of S − 1 would halve the gradient."""
    rows = 200_000
    x = torch.tensor([0.2, 0.0, -0.5], dtype=torch.float64).expand(rows, 3)
    g = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64).expand(rows, 3)
    few = gradient(x, 1, g, samples=2, generator=seeded(5))
    many = gradient(x[:200], 1, g[:200], samples=2_000, generator=seeded(6))
    error = (few.var(0) / rows + many.var(0) / 200).sqrt()
    assert ((few.mean(0) - many.mean(0)).abs() <= 5 * error).all()
    assert (error < 0.02 * many.mean(0).abs().max()).all()


def test_order_and_ties_hold_in_expectation():
    x = torch.tensor([0.0, 0.0, 0.0, 0.5, 1.0], dtype=torch.float64)
    y = khot.perturbed_topk(x, 2, samples=100_000, generator=seeded(7))
    assert (y[:3] - y[:3].mean()).abs().max() <= 5 * math.sqrt(0.25 / 100_000)
    assert y[2] < y[3] < y[4]


def test_what_no_sample_moves_has_no_gradient_and_rows_sum_to_zero():
    x = torch.tensor([100.0, 0.3, 0.0, -0.2, -100.0], dtype=torch.float64)
    g = torch.tensor([5.0, 1.0, -1.0, 2.0, 7.0], dtype=torch.float64)
    grad = gradient(x, 2, g, samples=50, generator=seeded(8))
    assert grad[0] == grad[4] == 0
    assert (grad[1:4] != 0).all()
    assert abs(grad.sum()) <= 1e-12
    assert gradient(x, 2, torch.full_like(x, 3.0), samples=50, generator=seeded(8)).abs().max() <= 1e-12


def test_the_temperature_scales_the_noise():
    x = torch.tensor([1.0, 0.0, -1.0])
    cold = khot.perturbed_topk(x, 1, temperature=1e-3, samples=10, generator=seeded(9))
    assert cold.tolist() == [1, 0, 0]
    warm = khot.perturbed_topk(x, 1, temperature=1e3, samples=20_000, generator=seeded(9))
    assert (warm - 1 / 3).abs().max() <= 5 * math.sqrt(2 / 9 / 20_000)


def test_one_generator_gives_one_answer_whatever_is_drawn_between():
    x = torch.randn(3, 8, generator=seeded(10))
    expected = gradient(x, 3, x, generator=seeded(11))
    torch.testing.assert_close(gradient(x, 3, x, generator=seeded(11)), expected, rtol=0, atol=0)
    leaf, generator = x.clone().requires_grad_(), seeded(11)
    y = khot.perturbed_topk(leaf, 3, generator=generator)
    torch.randn(5, generator=generator)
    before = generator.get_state()
    (grad,) = torch.autograd.grad(y, leaf, x)
    assert torch.equal(generator.get_state(), before), "the backward pass drew from the user's generator"
    assert torch.equal(grad, expected)


def test_torch_seeds_the_default_generator():
    x = torch.zeros(2, 6, requires_grad=True)
    with torch.random.fork_rng():
        torch.manual_seed(12)
        first = khot.perturbed_topk(x, 2, samples=5)
        second = khot.perturbed_topk(x, 2, samples=5)
        state = torch.get_rng_state()
        torch.autograd.grad(first.sum(), x)
        assert torch.equal(torch.get_rng_state(), state)
        torch.manual_seed(12)
        assert torch.equal(khot.perturbed_topk(x, 2, samples=5), first)
    assert not torch.equal(first, second)


def test_samples_are_drawn_in_blocks_that_do_not_change_the_law(monkeypatch):
    """In blocks of one sample, of a few with a shorter last one, and in one block."""
    x = torch.tensor([0.4, -0.1], dtype=torch.float64)
    g = torch.tensor([1.0, 0.0], dtype=torch.float64)
    expected = math.exp(-(0.25**2)) / math.sqrt(4 * math.pi)
    for block, samples in ((1, 500), (3_000, 5_000), (1 << 18, 5_000)):
        monkeypatch.setattr(perturbed, "_AT_ONCE", block)
        y = khot.perturbed_topk(x, 1, samples=samples, generator=seeded(13))
        assert y.sum() == 1
        assert abs(y[0] - phi(0.5 / math.sqrt(2))) <= 5 * math.sqrt(0.25 / samples)
        grad = gradient(x, 1, g, samples=samples, generator=seeded(13))
        assert abs(grad[0] - expected) <= 5 * math.sqrt(0.5 / samples)


def test_memory_does_not_grow_with_the_samples():
    """Between forward and backward, what is kept is of the size of a row."""
    kept = []
    x = torch.zeros(4, 1000, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        khot.perturbed_topk(x, 10, samples=200)
    assert kept
    assert sum(kept) <= 10 * x.numel()


@pytest.mark.parametrize("noise", ["normal", "gumbel"])
def test_the_same_noise_for_every_row(noise):
    """A row has the weights and the gradient that it has alone, however the samples are cut into parts."""
    x, g = torch.randn(2, 3, 40, 50, generator=seeded(16))
    options = {"noise": noise, "same_noise": True, "samples": 150}
    together = khot.perturbed_topk(x, 5, generator=seeded(17), **options)
    grads = gradient(x, 5, g, generator=seeded(17), **options)
    for i, j in [(0, 0), (2, 39)]:
        assert torch.equal(together[i, j], khot.perturbed_topk(x[i, j], 5, generator=seeded(17), **options))
        alone = gradient(x[i, j], 5, g[i, j], generator=seeded(17), **options)
        torch.testing.assert_close(grads[i, j], alone, atol=1e-5, rtol=1e-5)
    apart = khot.perturbed_topk(x[0, :1].expand(2, 50), 5, generator=seeded(17), noise=noise)
    assert not torch.equal(*apart)


def test_a_nan_score_makes_its_row_nan():
    x = torch.tensor([[1.0, math.nan, 0.0], [1.0, 2.0, 0.0]])
    y = khot.perturbed_topk(x, 1, generator=seeded(15))
    assert y[0].isnan().all()
    assert y[1].sum() == 1


def test_there_is_no_second_derivative():
    x = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    y = khot.perturbed_topk(x, 2, generator=seeded(14))
    (grad,) = torch.autograd.grad(y[0], x, create_graph=True)
    with pytest.raises(RuntimeError, match="perturbed_topk: there is no second derivative"):
        torch.autograd.grad(grad.square().sum(), x)


@pytest.mark.parametrize(
    ("bad", "kind", "message"),
    [
        ({"samples": 1}, ValueError, "perturbed_topk: samples must be at least 2, got 1"),
        ({"samples": 2.0}, TypeError, r"perturbed_topk: samples must be an integer, got 2\.0"),
        ({"noise": "uniform"}, ValueError, "noise must be 'normal' or 'gumbel', got 'uniform'"),
    ],
)
def test_bad_settings_are_named(bad, kind, message):
    with pytest.raises(kind, match=message):
        khot.perturbed_topk(torch.zeros(3), 1, **bad)


def test_without_values_there_is_no_noise_to_draw():
    """On a meta tensor there is a shape, forward and backward, and no question to another device."""
    x = torch.zeros(3, 8, device="meta", requires_grad=True)
    y = khot.perturbed_topk(x, 2)
    y.sum().backward()
    assert y.device.type == x.grad.device.type == "meta"
    assert y.shape == x.grad.shape == (3, 8)
