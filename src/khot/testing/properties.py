"""Checks of the declared properties, shapes, masks and the hard limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from khot.relaxations import hard_topk
from khot.relaxations.registry import Relaxation
from khot.testing.requirements import budgets, draw, require, require_close, scores, sum_tolerance
from khot.testing.truth import TRUTHS

__all__ = ["CHECKS"]

Options = Mapping[str, Any]


def check_range_and_sum(spec: Relaxation, options: Options) -> None:
    """Weights are not negative, at most 1 where declared, and sum to k."""
    x = scores(4, 9)
    for k in budgets(spec, 9):
        for temperature in (0.05, 1.0, 20.0):
            y = draw(spec, x, k, options, temperature=temperature)
            require(y.min() >= 0, f"k = {k}, temperature = {temperature}: weight {y.min():g} < 0")
            if spec.bounded:
                require(y.max() <= 1, f"k = {k}, temperature = {temperature}: weight {y.max():.17g} > 1")
            if spec.sums_to_k:
                worst = (y.sum(-1) - k).abs().max().item()
                allowed = sum_tolerance(y.dtype, 9, k)
                require(worst <= allowed, f"k = {k}, temperature = {temperature}: |Σy − k| = {worst:.3g}")


def check_order(spec: Relaxation, options: Options) -> None:
    """A larger score never has a smaller weight."""
    if spec.keeps_order and not spec.stochastic:
        y = draw(spec, scores(6, 11).sort(-1).values, 3, options)
        require(y.diff(dim=-1).min() >= -1e-12, "a larger score has a smaller weight")


def check_equivariance(spec: Relaxation, options: Options) -> None:
    """Permuting distinct scores permutes the weights."""
    if spec.equivariant and not spec.stochastic:
        x = scores(3, 8)
        order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
        moved = draw(spec, x[:, order], 3, options)
        require_close(moved, draw(spec, x, 3, options)[:, order], 1e-10, "permuted scores")


def check_shift(spec: Relaxation, options: Options) -> None:
    """Adding a constant to all scores changes nothing."""
    if spec.shift_invariant:
        x = scores(3, 8)
        require_close(draw(spec, x + 3, 2, options), draw(spec, x, 2, options), 1e-10, "scores + 3")


def check_ties(spec: Relaxation, options: Options) -> None:
    """Equal scores share the budget equally."""
    if spec.ties_share and not spec.stochastic:
        y = draw(spec, torch.full((2, 6), 1.25, dtype=torch.float64), 2, options)
        require_close(y, torch.full_like(y, 2 / 6), 1e-10, "six ties and k = 2")


def check_hard_limit(spec: Relaxation, options: Options) -> None:
    """As the temperature → 0, the weights become the hard top-k (of a sample, if the operator is random)."""
    x = scores(5, 10)
    y = draw(spec, x, 3, options, temperature=1e-8)
    require_close(y, hard_topk(y if spec.stochastic else x, 3), 1e-6, "temperature = 1e-8 against hard_topk")


def check_truth(spec: Relaxation, options: Options) -> None:
    """Values agree with an independent solution in extended precision."""
    truth = TRUTHS.get(spec.name)
    if truth is None or options:
        return
    x = scores(3, 40)
    for k in budgets(spec, 40):
        for temperature in (0.1, 1.0, 10.0):
            expected = torch.tensor([truth(row.numpy(), k, temperature).tolist() for row in x], dtype=x.dtype)
            y = draw(spec, x, k, options, temperature=temperature)
            require_close(y, expected, 1e-13, f"k = {k}, temperature = {temperature} against the truth")


def check_hard_flag(spec: Relaxation, options: Options) -> None:
    """``hard=True`` has the value of the hard top-k and the gradient of the soft one."""
    x = scores(3, 7).requires_grad_()
    direction = scores(3, 7, seed=1)
    hard = draw(spec, x, 2, options, hard=True)
    soft = draw(spec, x, 2, options)
    if not spec.stochastic:
        require(torch.equal(hard, hard_topk(x, 2)), "hard=True is not exactly the hard top-k")
    require(bool((hard.sum(-1) == 2).all()), "hard=True does not select exactly k")
    (actual,) = torch.autograd.grad(hard, x, direction)
    (expected,) = torch.autograd.grad(soft, x, direction)
    require_close(actual, expected, 1e-12, "gradient of hard=True")


def check_dims(spec: Relaxation, options: Options) -> None:
    """Any rank, any dim, non-contiguous input and an empty batch; the input is not changed."""
    rows = scores(5, 8)
    expected = draw(spec, rows, 3, options)
    columns = rows.t()
    require_close(draw(spec, columns, 3, options, dim=0), expected.t(), 1e-12, "dim=0 of the transpose")
    require_close(draw(spec, rows, 3, options, dim=1), expected, 1e-12, "positive last dim")
    cube = rows.reshape(5, 1, 8)
    require_close(draw(spec, cube, 3, options), expected.reshape(5, 1, 8), 1e-12, "shape (5, 1, 8)")
    if not spec.stochastic:
        require_close(draw(spec, rows[2], 3, options), expected[2], 1e-12, "one row alone")
    require(draw(spec, rows[:0], 3, options).shape == (0, 8), "an empty batch loses its shape")
    require(torch.equal(rows, scores(5, 8)), "the input was modified")


def check_mask(spec: Relaxation, options: Options) -> None:
    """A mask, or −inf, acts as if the entry were absent; with too few entries each gets weight 1."""
    x = scores(4, 9)
    mask = torch.ones(4, 9, dtype=torch.bool)
    mask[:, [1, 4]] = False
    y = draw(spec, x, 3, options, mask=mask)
    require(bool((y[~mask] == 0).all()), "a masked entry has weight")
    minus_inf = draw(spec, x.masked_fill(~mask, -math.inf), 3, options)
    require_close(minus_inf, y, 1e-12, "−inf against mask")
    if not spec.stochastic:
        kept = draw(spec, x[:, mask[0]], 3, options)
        require_close(y[:, mask[0]], kept, 1e-10, "masked row against the row without the entries")
    for allowed in (0, 1, 2, 3):
        few = torch.arange(9).expand(4, 9) < allowed
        scores_few = x.clone().requires_grad_()
        y = draw(spec, scores_few, 3, options, mask=few)
        require(torch.equal(y, few.to(y.dtype)), f"{allowed} allowed of k = 3: not each exactly 1")
        (grad,) = torch.autograd.grad(y, scores_few, torch.ones_like(y))
        require(not grad.any(), f"{allowed} allowed of k = 3: gradient is not 0")


def check_budget_edges(spec: Relaxation, options: Options) -> None:
    """Budgets of 0 and n, a budget per row, and rows of one entry."""
    x = scores(3, 5)
    require(not draw(spec, x, 0, options).any(), "k = 0 does not give zeros")
    require(bool((draw(spec, x, 5, options) == 1).all()), "k = n does not give ones")
    require(bool((draw(spec, x[:, :1], 1, options) == 1).all()), "n = k = 1 does not give one")
    if spec.real_k:
        k = torch.tensor([0.5, 2.0, 4.75], dtype=torch.float64)
        rows = torch.stack([draw(spec, row, float(b), options) for row, b in zip(x, k, strict=True)])
        require_close(draw(spec, x, k, options), rows, 1e-12, "a tensor k against one k a row")


CHECKS = [
    check_range_and_sum,
    check_order,
    check_equivariance,
    check_shift,
    check_ties,
    check_hard_limit,
    check_truth,
    check_hard_flag,
    check_dims,
    check_mask,
    check_budget_edges,
]
