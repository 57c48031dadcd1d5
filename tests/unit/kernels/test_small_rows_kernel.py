"""Short rows by kernels: the same weights and gradients as in torch operations."""

import math

import pytest
import torch

import khot
from khot.kernels import cpu, loader
from khot.relaxations import _problem
from khot.relaxations.threshold import _family
from strategies.instruction_sets import every_instruction_set

pytestmark = pytest.mark.usefixtures("library")

OPERATORS = {
    "softsort": [{}],
    "iterative": [{}],
    "neuralsort": [{}],
    "successive_softmax": [{}, {"capped": True}],
    "network": [{}, {"network": "odd_even"}, {"distribution": "cauchy"}],
    "pairwise": [{}, {"window": 0.3}],
    "soft_rank": [{}, {"window": 2.0}],
    "successive_halving": [{}],
}
CASES = [(name, options) for name, choices in OPERATORS.items() for options in choices]
GATES = ["laplace", "normal", "sparse"]


def operator(name):
    return getattr(khot, f"{name}_topk")


def scores(rows, n, dtype=torch.float64):
    x = torch.randn(rows, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64).to(dtype)
    x[0, : n // 2] = x[0, 0]  # ties
    return x


def both(monkeypatch, call):
    """By the kernel, and without."""
    found = call()
    with monkeypatch.context() as patch:
        patch.setattr(_problem, "small_weights", lambda *arguments: None)
        patch.setattr(_family, "plain_gated", lambda *arguments: None)
        return found, call()


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize(("n", "k"), [(2, 1), (16, 5), (33, 32), (64, 8)])
@pytest.mark.usefixtures("poisoned")
def test_weights_and_gradients(monkeypatch, name, options, n, k):
    x, g = scores(4, n).requires_grad_(), scores(4, n).flip(0)
    for temperature in (0.05, 1.0, 4.0):

        def call(temperature=temperature):
            y = operator(name)(x, k, temperature=temperature, **options)
            return y.detach(), torch.autograd.grad(y, x, g)[0]

        compiled, portable = both(monkeypatch, call)
        torch.testing.assert_close(compiled[0], portable[0], rtol=0, atol=1e-11)
        torch.testing.assert_close(compiled[1], portable[1], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", [*OPERATORS, *GATES])
def test_single_precision_and_the_smallest(monkeypatch, name):
    x = scores(4, 16, torch.float32)
    call = lambda: operator(name)(x, 4, largest=False)  # noqa: E731
    compiled, portable = both(monkeypatch, call)
    assert compiled.dtype == torch.float32
    torch.testing.assert_close(compiled, portable, rtol=0, atol=2e-6)
    hard = operator(name)(x, 4, hard=True)
    assert torch.equal(hard, khot.hard_topk(x, 4))


@pytest.mark.parametrize("name", [*OPERATORS, *GATES])
def test_derivatives_of_derivatives_and_batches_of_gradients(monkeypatch, name):
    x = scores(2, 6)[1:].requires_grad_()
    directions = torch.eye(6, dtype=torch.float64).unsqueeze(1)

    def call():
        y = operator(name)(x, 2)
        (first,) = torch.autograd.grad(y, x, directions[0], create_graph=True)
        second = torch.autograd.grad(first[0, 1], x, allow_unused=True)[0] if first.requires_grad else None
        second = torch.zeros_like(x) if second is None else second
        y = operator(name)(x, 2)
        return second, torch.autograd.grad(y, x, directions, is_grads_batched=True)[0]

    compiled, portable = both(monkeypatch, call)
    for mine, other in zip(compiled, portable, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", OPERATORS)
def test_scores_that_are_not_ordinary_go_the_other_way(monkeypatch, name):
    x = scores(3, 8, torch.float32)
    x[0, 1], x[1, 2], x[2, 3] = math.inf, -math.inf, 1e20
    compiled, portable = both(monkeypatch, lambda: operator(name)(x.clone().requires_grad_(), 3).detach())
    assert torch.equal(compiled, portable)
    assert compiled[0, 1] == 1
    assert compiled[1, 2] == 0


@pytest.mark.parametrize("name", ["pairwise", "soft_rank"])
def test_what_has_no_exponentials_goes_the_other_way(name):
    x = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
    assert cpu.small_rows(name, x, 2, 1e-3, window=1e-3) is None
    torch.testing.assert_close(operator(name)(x, 2, temperature=1e-3), khot.hard_topk(x, 2))


@pytest.mark.parametrize("name", ["softsort", "soft_rank", "pairwise"])
def test_rows_without_a_gradient(name):
    """Of the kernel, beside those with a gradient, which are made in torch operations."""
    x = scores(3, 9)
    for temperature in (0.7, torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)):
        found = khot.topk_matrix(x, 4, name, temperature=temperature)
        wanted = khot.topk_matrix(x.clone().requires_grad_(), 4, name, temperature=temperature)
        torch.testing.assert_close(found, wanted.detach(), rtol=0, atol=1e-12)


def test_threads_make_no_difference():
    x, before = scores(64, 200, torch.float32), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(
                torch.stack([cpu.small_rows(name, x, 9, 0.5) for name in OPERATORS if name != "network"])
            )
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_refusals():
    with pytest.raises(TypeError, match="x must be float32 or float64"):
        cpu.small_rows("softsort", torch.zeros(2, 4, dtype=torch.float16), 2, 1.0)
    with pytest.raises(ValueError, match="k must be from 1 to 4, got 5"):
        cpu.small_rows("softsort", torch.zeros(2, 4), 5, 1.0)


@every_instruction_set
def test_every_instruction_set(isa, run_python):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    code = """
import torch, khot
from khot.kernels import loader
from khot.relaxations import _problem
torch.manual_seed(0)
x = torch.randn(5, 32, dtype=torch.float64, requires_grad=True)
g = torch.randn(5, 32, dtype=torch.float64)
kernel = _problem.small_weights
for name in ('softsort', 'iterative', 'neuralsort', 'successive_softmax', 'network', 'pairwise', 'soft_rank',
             'successive_halving'):
    f = getattr(khot, name + '_topk')
    results = []
    for _problem.small_weights in (kernel, lambda *a: None):
        y = f(x, 6)
        results.append((y, torch.autograd.grad(y, x, g)[0]))
    for a, b in zip(*results):
        assert (a - b).abs().max() < 1e-9, name
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
