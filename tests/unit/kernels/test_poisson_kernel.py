"""The kernels of conditional Poisson sampling against sums over all sets."""

import itertools

import pytest
import torch

from khot.designs.exponential import _weights_from_inclusion as solver
from khot.kernels import cpu, loader
from strategies.design_examples import probabilities
from strategies.instruction_sets import every_instruction_set

pytestmark = pytest.mark.usefixtures("library")

SIZES = [(2, 1), (5, 1), (7, 3), (7, 6), (9, 5), (12, 4)]


def parameters(rows, n, spread=2.0):
    return spread * torch.randn(rows, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def moments(theta, k):
    """Inclusion probabilities and covariances by enumeration."""
    sets = torch.zeros(len(list(itertools.combinations(range(theta.shape[-1]), k))), theta.shape[-1]).double()
    for row, chosen in zip(sets, itertools.combinations(range(theta.shape[-1]), k), strict=True):
        row[list(chosen)] = 1
    p = (theta @ sets.T).softmax(-1)
    joint = torch.einsum("rs,si,sj->rij", p, sets, sets)
    pi = p @ sets
    return pi, joint - pi.unsqueeze(-1) * pi.unsqueeze(-2)


def chance_of(t, k):
    """P(k of independent gates are open), by enumeration."""
    total = torch.zeros(len(t), 1, dtype=torch.float64)
    for chosen in itertools.combinations(range(t.shape[-1]), k):
        sign = -torch.ones(t.shape[-1], dtype=torch.float64)
        sign[list(chosen)] = 1
        total += torch.sigmoid(sign * t).prod(-1, keepdim=True)
    return total


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("poisoned")
def test_inclusion_and_covariance(n, k, dtype):
    theta = parameters(11, n).to(dtype)
    pi, covariance = moments(theta.double(), k)
    grad = parameters(11, n, 1.0).flip(0).to(dtype)
    reference, start = theta[:, :1].double() + 0.5, torch.full((11, 1), -0.25, dtype=torch.float64)
    atol = 1e-6 if dtype == torch.float32 else 1e-13
    found, exactly = cpu.poisson_inclusion(theta, reference, start, k)
    torch.testing.assert_close(found.double(), pi, rtol=0, atol=atol)
    torch.testing.assert_close(exactly, chance_of(theta.double() - reference + start, k), rtol=1e-12, atol=0)
    product = cpu.poisson_covariance(theta, reference, start, k, grad)
    wanted = (covariance @ grad.double().unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(product.double(), wanted, rtol=0, atol=10 * atol)


def test_small_probabilities_keep_their_digits():
    theta = torch.tensor([[0.0, 0.0, -80.0, 0.0, 0.0]], dtype=torch.float64)
    zero = torch.zeros(1, 1, dtype=torch.float64)
    found = cpu.poisson_inclusion(theta, zero, zero, 2)[0][0, 2].item()
    w = torch.tensor(-80.0, dtype=torch.float64).exp().item()
    assert found == pytest.approx(4 * w / (6 + 4 * w), rel=1e-13)


@pytest.mark.parametrize(("n", "k"), [(10, 3), (10, 8), (60, 10), (200, 60)])
def test_weights_have_the_inclusion_probabilities(n, k):
    pi = torch.stack([probabilities(n, k, seed, 1.0) for seed in range(5)])
    pi[2] = 0
    pi[2, : k - 1] = 1
    pi[2, -4:] = 0.25
    odds, error = cpu.poisson_weights(pi, k, 1e-11, 100)
    converged = (error <= 1e-11).squeeze(-1)
    assert converged.sum() >= 4
    open_ = (pi > 0) & (pi < 1)
    theta = torch.where(open_, odds.log(), torch.where(pi > 0.5, 100.0, -100.0))
    zero = torch.zeros(5, 1, dtype=torch.float64)
    back = cpu.poisson_inclusion(theta, zero, zero, k)[0]
    torch.testing.assert_close(back[converged], pi[converged], rtol=0, atol=1e-10)


def test_rows_that_do_not_converge_take_the_accelerated_steps(monkeypatch):
    pi = torch.stack([probabilities(8, 3, seed, 1.0) for seed in range(3)])
    wanted = solver.weights_from_inclusion(pi, 3)
    monkeypatch.setattr(solver, "_PLAIN", 1)
    found = solver.weights_from_inclusion(pi, 3)
    differences = found - wanted
    torch.testing.assert_close(differences, differences[:, :1].expand(3, 8), rtol=0, atol=1e-8)


def test_refusals():
    zero = torch.zeros(2, 1, dtype=torch.float64)
    with pytest.raises(TypeError, match="theta must be float32 or float64"):
        cpu.poisson_inclusion(torch.zeros(2, 4, dtype=torch.float16), zero, zero, 2)
    with pytest.raises(ValueError, match="k must be from 1 to 3, got 4"):
        cpu.poisson_inclusion(torch.zeros(2, 4), zero, zero, 4)


@every_instruction_set
def test_every_instruction_set(isa, run_python):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    code = """
import torch
from khot.kernels import cpu, loader
torch.manual_seed(0)
t, z = torch.randn(21, 40, dtype=torch.float64), torch.zeros(21, 1, dtype=torch.float64)
p, _ = cpu.poisson_inclusion(t, z, z, 7)
assert (p.sum(-1) - 7).abs().max() < 1e-12
d = torch.randn_like(t)
s = (cpu.poisson_inclusion(t + 1e-6 * d, z, z, 7)[0] - cpu.poisson_inclusion(t - 1e-6 * d, z, z, 7)[0]) / 2e-6
assert (cpu.poisson_covariance(t, z, z, 7, d) - s).abs().max() < 1e-8
w, e = cpu.poisson_weights(p, 7, 1e-11, 60)
assert e.max() <= 1e-11 and (cpu.poisson_inclusion(w.log(), z, z, 7)[0] - p).abs().max() < 1e-10
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
