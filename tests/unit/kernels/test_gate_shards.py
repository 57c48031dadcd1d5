"""Weights and Jacobian products at a known threshold: the kernels give what the portable path gives."""

import math

import pytest
import torch

from khot.kernels import cpu
from khot.parallel import _passes
from khot.parallel._passes import KnownRows
from khot.parallel._solver import Threshold
from khot.relaxations.threshold._gates import LAPLACE, LOGISTIC, Sparse


@pytest.mark.parametrize("gate", [LOGISTIC, LAPLACE, Sparse(2.0)], ids=lambda gate: gate.kernel)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("n", [0, 1, 7, 1000, 70_000])
@pytest.mark.usefixtures("library")
def test_as_the_portable_path(gate, dtype, tolerance, n, monkeypatch):
    generator = torch.Generator().manual_seed(n)
    x, grad = torch.randn(2, 3, n, dtype=dtype, generator=generator)
    if n > 4:
        x[0, 1], x[1, 2:4], grad[0, 1] = math.inf, -math.inf, math.nan  # where no score moves the weight
    anchor, offset, mean = torch.randn(3, 3, 1, dtype=dtype, generator=generator)
    temperature = torch.rand(3, 1, dtype=dtype, generator=generator) + 0.1
    fine, one = torch.full_like(anchor, 1e-3), torch.ones_like(anchor)
    at = Threshold(anchor, offset, fine, one > 0, 0 * one, one, 0 * one, anchor, one < 0)
    rows = KnownRows(gate, x, temperature, at)
    found = rows.weights(), rows.sums(grad), rows.product(grad, mean)
    monkeypatch.setattr(_passes, "has_kernel", lambda gate, x: False)
    expected = rows.weights(), rows.sums(grad), rows.product(grad, mean)
    for ours, portable, unit in zip(found, expected, (1, max(n, 1) ** 0.5, 1), strict=True):
        assert (ours.dtype, ours.shape) == (portable.dtype, portable.shape)
        assert ((ours - portable).abs() <= 10 * tolerance * unit / temperature).all()


@pytest.mark.usefixtures("library")
def test_wrong_calls_are_refused():
    x, row = torch.zeros(2, 3), torch.ones(2, 1)
    shard = cpu.GateShard("logistic", x, row, row, row, row)
    with pytest.raises(AssertionError):
        cpu.slope_sums(shard, x.double())
    with pytest.raises(AssertionError):
        cpu.slope_product(shard, x[:1], row)
    with pytest.raises(ValueError, match="gate must be from 0 to 2, got 3"):
        cpu.gate_weights(shard._replace(gate="normal"))
