"""Sums of comparisons read off from Chebyshev series are those of all pairs."""

import pytest
import torch

import khot
from khot.relaxations.ranks import _comparison_sums, pairwise
from strategies.random_scores import scores

N = 2100


def rows(kind):
    z = scores(2, N, seed=3)
    if kind == "ties":
        return z.round()
    if kind == "clusters":
        return z + 1e6 * (z > 0.5) - 40 * (z < -0.5)
    if kind == "masked":
        z[:, ::3] = torch.finfo(z.dtype).min / 4
        return z
    if kind == "shifted":
        return z + 1e4
    return {"narrow": 1e-3, "ordinary": 1.0, "wide": 3.0}[kind] * z


def by_all_pairs(z, v):
    step = torch.sigmoid(z.unsqueeze(-2) - z.unsqueeze(-1))
    return step.sum(-1), (step * (1 - step) * (v.unsqueeze(-2) - v.unsqueeze(-1))).sum(-1)


@pytest.mark.parametrize("kind", ["narrow", "ordinary", "wide", "shifted", "ties", "clusters", "masked"])
def test_sums_are_those_of_all_pairs(kind):
    z, v = rows(kind), scores(2, N, seed=4) + 100  # a common part of v has no effect
    steps, slopes = by_all_pairs(z, v)
    torch.testing.assert_close(_comparison_sums.step_sums(z), steps, rtol=0, atol=1e-13 * N)
    torch.testing.assert_close(_comparison_sums.slope_sums(z, v), slopes, rtol=0, atol=1e-13 * N)


def test_in_parts(monkeypatch):
    z, v = rows("ordinary"), scores(2, N, seed=4)
    expected = _comparison_sums.slope_sums(z, v)
    monkeypatch.setattr(_comparison_sums, "_AT_ONCE", 1000)
    torch.testing.assert_close(_comparison_sums.slope_sums(z, v), expected, rtol=0, atol=0)


def test_scores_far_apart_are_left_to_all_comparisons():
    assert _comparison_sums.step_sums(100 * scores(N)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_and_gradients_are_those_of_all_comparisons(monkeypatch, dtype):
    x = scores(2, N).to(dtype)
    x[1] *= 100  # a row that needs all comparisons takes the others with it
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for row in (x[:1], x):
        found = []
        for many in (_comparison_sums.MANY, N + 1):
            monkeypatch.setattr(pairwise, "MANY", many)
            leaf = row.clone().requires_grad_()
            y = khot.pairwise_topk(leaf, 7, temperature=0.3)
            found.append((y.detach(), *torch.autograd.grad(y, leaf, scores(*row.shape, seed=1).to(dtype))))
        for quick, right in zip(*found, strict=True):
            largest = max(1.0, right.abs().max().item())
            torch.testing.assert_close(quick, right, rtol=0, atol=tolerance * largest)
