"""Entries from a low value to a high one: the kernel finds what comparisons find."""

import math

import pytest
import torch

from khot.kernels import cpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [0, 1, 7, 1000, 70_001])
@pytest.mark.usefixtures("library")
def test_as_comparisons(dtype, n):
    x = torch.randn(3, n, dtype=dtype, generator=torch.Generator().manual_seed(n)).mul(8).round() / 8
    if n > 4:
        x[0, 1], x[1, 2:4], x[2, 0] = math.inf, -math.inf, math.nan
    low, high = torch.tensor([[-0.5], [-math.inf], [1.0]]), torch.tensor([[0.25], [0.5], [math.inf]])
    low, high = low.to(dtype), high.to(dtype)
    above, between, found = cpu.entries_between(x, low, high)
    inside = (x >= low) & (x <= high)
    assert torch.equal(above, (x > high).sum(-1, keepdim=True))
    assert torch.equal(between, inside.sum(-1, keepdim=True))
    assert torch.equal(found, x[inside])


@pytest.mark.usefixtures("library")
def test_wrong_calls_are_refused():
    x, row = torch.zeros(2, 3), torch.ones(2, 1)
    with pytest.raises(AssertionError):
        cpu.entries_between(x, row.double(), row)
    with pytest.raises(AssertionError):
        cpu.entries_between(x, row[:1], row)
