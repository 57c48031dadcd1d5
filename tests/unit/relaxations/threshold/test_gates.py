"""The solver's fixed number of steps suffices for every gate, on the adversarial rows of `test_solver`."""

import functools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import cauchy
from torch import Tensor

import khot
from khot.relaxations.threshold import _solver
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import LAPLACE, NORMAL, Gate, Sparse, UserGate, _Symmetric
from khot.testing import truth
from strategies.adversarial_rows import N, problems
from strategies.quick_run import in_turn

ROWS, CHECKED = 60, 3
GATES = {
    "laplace": (LAPLACE, truth.laplace),
    "normal": (NORMAL, truth.normal),
    "sparse 2": (Sparse(2.0), lambda x, k: truth.sparse(x, k, norm=2.0)),
    "sparse 1.5": (Sparse(1.5), lambda x, k: truth.sparse(x, k, norm=1.5)),
    "sparse 1.1": (Sparse(1.1), lambda x, k: truth.sparse(x, k, norm=1.1)),
}
gates = pytest.mark.parametrize("name", GATES)


def arguments(gate: Gate, x: Tensor, k: Tensor) -> Tensor:
    """The a of y = F(a)."""
    a, settled, _ = _solver.solve(gate, x, k, torch.ones_like(k), None)
    assert not settled.any()
    return a


def after(steps: int, gate: Gate, x: Tensor, k: Tensor) -> Tensor:
    """The same with that many steps, none of which is left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "steps", (steps, steps))
        patch.setattr(_solver, "is_plain", lambda *tensors: False)
        return arguments(gate, x, k)


def units(gate: Gate, a: Tensor, reference: Tensor) -> Tensor:
    """For each row the error of a in units of eps (1 + |a| + log n); of a sparse gate that of y, of eps F′.

    An a of which y or 1 − y underflows has no digits, but must underflow too.
    """
    eps, tiny = torch.finfo(a.dtype).eps, torch.finfo(a.dtype).tiny
    if isinstance(gate, Sparse):
        steepest = 1 / (gate.norm - 1)
        return ((gate.weights(a) - gate.weights(reference)).abs() / (eps * steepest)).amax(-1)
    error = (a - reference).abs() / (eps * (1 + reference.abs() + math.log(N)))
    gone = gate.weights(-reference.abs()) <= 10 * tiny
    as_well = (a * reference > 0) & (gate.weights(-a.abs()) <= 20 * tiny)
    return torch.where(gone, torch.where(as_well, 0.0, math.inf), error).amax(-1)


@functools.cache
def rows(dtype: torch.dtype) -> tuple[list[str], Tensor, Tensor]:
    """The problems, `ROWS` of each kind and budget, one after the other."""
    names, x, k = zip(*((name, x[:ROWS], k[:ROWS]) for name, x, k in problems(dtype)), strict=True)
    return list(names), torch.cat(x), torch.cat(k)


@functools.cache
def solved(name: str, dtype: torch.dtype) -> Tensor:
    """The problems after far more steps than any needs."""
    _, x, k = rows(dtype)
    return after(90, GATES[name][0], x, k)


# Whether the solver may stop early, and a type.
WAYS = [(True, torch.float64), (False, torch.float32), (True, torch.float32), (False, torch.float64)]


@pytest.mark.parametrize(("name", "way"), in_turn(GATES, WAYS))
def test_steps_suffice(name, way, monkeypatch):
    gate, _ = GATES[name]
    early, dtype = way
    names, x, k = rows(dtype)
    monkeypatch.setattr(_solver, "is_plain", lambda *tensors: early)
    at_once = ROWS if early else len(x)  # the row that needs the most steps stops them all
    a = torch.cat([arguments(gate, *part) for part in zip(x.split(at_once), k.split(at_once), strict=True)])
    error = units(gate, a, solved(name, dtype))
    worst = int(error.argmax())
    assert error[worst] <= 8, (names[worst // ROWS], x[worst], k[worst])


@pytest.mark.parametrize(("name", "dtype"), in_turn(GATES, [torch.float32, torch.float64]))
def test_weights_are_the_truth(name, dtype):
    gate, true_weights = GATES[name]
    names, x, k = rows(dtype)
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    a = arguments(gate, x, k)
    y = gate.weights(a).double().numpy()
    # an error of a, relative to |a|, is one of the logarithm of a tail, relative to a² at most
    digits = 16 * eps * (1 + a.double().clamp(-1e4, 1e4).square().numpy())
    least = 16 * eps if isinstance(gate, Sparse) else 20 * tiny
    for i in range(0, len(x), ROWS // CHECKED):
        expected = true_weights(x[i].double().numpy(), k[i].item())
        wrong = np.abs(y[i] - expected) > digits[i] * expected + least
        assert not wrong.any(), (names[i // ROWS], x[i], k[i], y[i], expected)


@gates
def test_too_few_steps_are_noticed(name):
    """The rows above are hard enough to tell."""
    gate, _ = GATES[name]
    _, x, k = rows(torch.float64)
    assert units(gate, after(3, gate, x, k), solved(name, torch.float64)).max() > 1e6


def cauchy_cdf(a: Tensor) -> Tensor:
    """Without cancellation in the lower tail, for a < 0: atan(−1/a)/π."""
    return torch.where(a < -1, torch.atan(-1 / a.clamp_max(-1)) / math.pi, 0.5 + torch.atan(a) / math.pi)


def test_a_user_gate_with_the_cauchy_cdf_finds_the_root_of_brentq():
    gate = UserGate(cauchy_cdf, None, lambda a: cauchy_cdf(-a))
    names, x, k = rows(torch.float64)
    y = gate.weights(arguments(gate, x, k)).numpy()
    for i in range(0, len(x), ROWS // CHECKED):
        row, budget = x[i].numpy(), k[i].item()
        reach = 1e3 + 1e16 * np.abs(row).max()
        c = brentq(
            lambda c, row=row, budget=budget: np.arctan2(1, -(row + c)).sum() / math.pi - budget,
            -reach,
            reach,
            xtol=1e-12,
            rtol=1e-15,
            maxiter=500,
        )
        np.testing.assert_allclose(y[i], cauchy.cdf(row + c), rtol=0, atol=1e-9, err_msg=names[i // ROWS])


def normal_cdf(a: Tensor) -> Tensor:
    """Unlike `torch.special.ndtr`, exact in the lower tail."""
    return torch.special.erfc(-a / math.sqrt(2)) / 2


def test_a_user_gate_with_the_normal_cdf_is_the_normal_gate():
    gate = UserGate(normal_cdf, None, lambda a: normal_cdf(-a))
    names, x, k = rows(torch.float64)
    ours, theirs = gate.weights(arguments(gate, x, k)), NORMAL.weights(arguments(NORMAL, x, k))
    error = (ours - theirs).abs().amax(-1)
    assert error.max() <= 1e-13, names[int(error.argmax()) // ROWS]


def test_a_user_gate_with_a_cdf_of_few_digits_is_right_to_those():
    """`torch.special.ndtr` is (1 + erf)/2: its tail is 0 beyond −8."""
    gate = UserGate(torch.special.ndtr, None, None)
    names, x, k = rows(torch.float64)
    error = (gate.weights(arguments(gate, x, k)).sum(-1, keepdim=True) - k).abs()
    assert error.max() <= 1e-12, names[int(error.argmax()) // ROWS]


class _Algebraic(_Symmetric):
    """F(a) = ½(1 + a/√(1 + a²)): a gate of its own with the three methods that its module names."""

    def tail(self, a):
        root = torch.sqrt(1 + a * a)
        p = torch.where(a < 0, 0.5 / (root * (root - a)), 0.5 * (1 + a / root))
        return p, 0.5 / root**3, -1.5 * a / root**5

    def quantile(self, p, q):
        return (p - q) / (2 * torch.sqrt(p * q))

    def slope(self, state):
        size = state.abs()
        return 4 * (size * (1 - size)) ** 1.5


def test_a_symmetric_gate_is_three_methods():
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    y = gated_topk("algebraic_topk", _Algebraic(), x, 3, 0.5, -1, None, True, False)
    torch.testing.assert_close(y.sum(-1), torch.full((4,), 3.0, dtype=torch.float64))
    expected = khot.cdf_topk(x, 3, cdf=lambda a: 0.5 * (1 + a / torch.sqrt(1 + a * a)), temperature=0.5)
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-9)
    assert torch.autograd.gradcheck(
        lambda x: gated_topk("algebraic_topk", _Algebraic(), x, 3, 0.5, -1, None, True, False), (x,)
    )
    with pytest.raises(NotImplementedError, match="_Algebraic has no potential"):
        _Algebraic().potential(y)
