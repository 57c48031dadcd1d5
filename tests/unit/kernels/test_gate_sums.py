"""Sums over a shard at an offset: the kernel gives what the portable path gives."""

import math

import pytest
import torch

from khot.kernels import cpu
from khot.parallel import _sums
from khot.relaxations.threshold._gates import LAPLACE, LOGISTIC, Sparse


@pytest.mark.parametrize("gate", [LOGISTIC, LAPLACE, Sparse(2.0)], ids=lambda gate: gate.kernel)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("n", [0, 1, 7, 1000, 70_000])
@pytest.mark.usefixtures("library")
def test_as_the_portable_path(gate, dtype, tolerance, n, monkeypatch):
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(3, n, dtype=dtype, generator=generator).mul(3).round() / 3
    anchor = x[:, :1].clone() if n else torch.zeros(3, 1, dtype=dtype)
    if n > 4:
        x[0, 1], x[1, 2:4] = math.inf, -math.inf
    temperature, offset = (torch.rand(3, 1, dtype=dtype, generator=generator) + 0.1 for _ in range(2))
    fine = torch.full((3, 1), 1e-3, dtype=dtype)
    ties_below = torch.tensor([[True], [False], [True]])
    found = cpu.gate_sums(cpu.GateShard(gate.kernel, x, anchor, temperature, offset, fine), ties_below)
    rows = _sums.Rows(gate, anchor, temperature, ties_below, offset)
    monkeypatch.setattr(cpu, "usable", lambda *tensors: False)
    expected = _sums.local_sums(rows, x)(offset, fine)
    assert found.shape == expected.shape == (3, 10)
    unit = expected.abs().amax(-1, keepdim=True).clamp_min(1)  # some sums are of terms of both signs
    assert ((found - expected).abs() <= tolerance * unit).all()


@pytest.mark.usefixtures("library")
def test_wrong_calls_are_refused():
    x, row = torch.zeros(2, 3), torch.ones(2, 1)
    with pytest.raises(AssertionError):
        cpu.gate_sums(cpu.GateShard("logistic", x, row.double(), row, row, row), row > 0)
    with pytest.raises(ValueError, match="gate must be from 0 to 2, got 3"):
        cpu.gate_sums(cpu.GateShard("normal", x, row, row, row, row), row > 0)
