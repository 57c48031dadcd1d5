"""Checks of the soft one-hot rows: row r selects the r-th best, for r = 1 … k."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from khot.relaxations import topk_matrix, topk_values
from khot.relaxations.facade import has_rows
from khot.relaxations.hard import ranked_indices
from khot.relaxations.registry import Relaxation
from khot.testing.requirements import draw, require, require_close, scores

__all__ = ["CHECKS"]

Options = Mapping[str, Any]


def check_rows(spec: Relaxation, options: Options) -> None:
    """Rows are distributions, they add up to the weights, and rows beyond the allowed entries are 0."""
    if not _applies(spec):
        return
    x = scores(4, 9)
    x[1, 2], x[2, [0, 3, 7]] = math.inf, math.inf
    mask = torch.ones(4, 9, dtype=torch.bool)
    mask[3, 2:] = False
    for k in (1, 4, 9):
        for temperature in (0.05, 1.0, 20.0):
            settings: dict[str, Any] = {**options, "temperature": temperature, "mask": mask}
            rows = topk_matrix(x, k, spec, **settings)
            where = f"k = {k}, temperature = {temperature}"
            require(rows.shape == (4, k, 9), f"{where}: rows of shape {tuple(rows.shape)}")
            require(rows.min() >= 0, f"{where}: an entry of the rows is {rows.min():.3g}")
            exists = torch.arange(k) < mask.sum(-1, keepdim=True)
            require_close(rows.sum(-1), exists.to(rows.dtype), 1e-9, f"{where}: sums of rows")
            require(not rows.movedim(1, 2)[~mask].any(), f"{where}: a masked entry is in a row")
            more = mask.sum(-1) > k  # else every allowed entry has weight 1, and the rows still rank them
            weights = draw(spec, x, k, {**settings, **spec.row_options})
            require_close(rows.sum(-2)[more], weights[more], 1e-9, f"{where}: the sum of the rows")
    third = topk_matrix(x[2], 2, spec, **options)[:, [0, 3, 7]]
    require_close(third, torch.full_like(third, 1 / 3), 1e-15, "rows shared by three entries at +inf")


def check_hard_rows(spec: Relaxation, options: Options) -> None:
    """As the temperature → 0, rows select the hard top-k; ``hard=True`` sorts it, with the soft gradient."""
    if not _applies(spec):
        return
    x = scores(5, 10).requires_grad_()
    cold = topk_matrix(x.detach(), 3, spec, temperature=1e-8, **options)
    require_close(cold.amax(-1), torch.ones(5, 3, dtype=cold.dtype), 1e-6, "the largest entries of cold rows")
    hard, soft = (topk_matrix(x, 3, spec, hard=h, **options) for h in (True, False))
    exact = torch.nn.functional.one_hot(ranked_indices(x, 3)[0], 10).to(hard.dtype)
    require(torch.equal(hard, exact), "rows with hard=True are not one-hot in the order of the scores")
    direction = scores(5, 3, 10, seed=1)
    actual, expected = (torch.autograd.grad(rows, x, direction)[0] for rows in (hard, soft))
    require_close(actual, expected, 1e-12, "gradient of rows with hard=True")


def check_row_edges(spec: Relaxation, options: Options) -> None:
    """No rows, all rows, one entry, nothing allowed: shapes are right, and every result has a graph."""
    if not _applies(spec):
        return
    for n, k in ((5, 0), (5, 5), (1, 1), (1, 0), (0, 0)):
        for hard in (False, True):
            x = scores(3, n).requires_grad_()
            where = f"n = {n}, k = {k}, hard={hard}"
            rows, values = (f(x, k, spec, hard=hard, **options) for f in (topk_matrix, topk_values))
            for what, result, shape in (("rows", rows, (3, k, n)), ("values", values, (3, k))):
                require(result.shape == shape, f"{where}: {what} of shape {tuple(result.shape)}")
                require(result.requires_grad, f"{where}: {what} have no graph, though the scores have one")
                (grad,) = torch.autograd.grad(result.sum(), x)
                require(bool(grad.isfinite().all()), f"{where}: a gradient of {what} is not finite")
    nobody = torch.zeros(5, dtype=torch.bool)
    require(not topk_matrix(scores(3, 5), 2, spec, mask=nobody, **options).any(), "rows of nobody are not 0")


def check_half_rows(spec: Relaxation, options: Options) -> None:
    """Rows in half types are those of float64, rounded: nothing is subtracted after rounding."""
    if not _applies(spec):
        return
    for dtype in (torch.float16, torch.bfloat16):
        x = scores(2, 60).to(dtype)
        rows = topk_matrix(x, 30, spec, **options)
        require(rows.dtype == dtype, f"rows of {dtype} scores are {rows.dtype}")
        expected = topk_matrix(x.double(), 30, spec, **options)
        off = ((rows.double() - expected).abs() / (expected + 1e-3)).max().item()
        require(off <= 4 * torch.finfo(dtype).eps, f"rows in {dtype}: off by {off:.3g} of their values")


def check_row_values(spec: Relaxation, options: Options) -> None:
    """``topk_values`` never reads excluded entries: NaN or infinity there changes nothing."""
    if not _applies(spec):
        return
    x = scores(3, 8)
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[:, [1, 6]] = False
    direction = scores(3, 4, seed=1)
    expected = topk_values(x[:, mask[0]], 4, spec, **options)
    for poison in (math.nan, math.inf, -math.inf):
        leaf = x.masked_fill(~mask, poison).requires_grad_()
        values = topk_values(leaf, 4, spec, mask=mask, **options)
        require_close(values, expected, 1e-10, f"values beside a masked {poison}")
        (grad,) = torch.autograd.grad(values, leaf, direction)
        require(bool(grad.isfinite().all()), f"a gradient beside a masked {poison} is not finite")
        require(not grad[~mask].any(), f"a masked {poison} has a gradient")
    x[0, 2] = math.inf
    best = topk_values(x, 2, spec, temperature=1e-8, **options)[0]
    # The slots of an operator need not be in order.
    rest = torch.cat([x[0, :2], x[0, 3:]]).max()
    require(best.max() == math.inf, "an entry at +inf is not among the values")
    require_close(best.min(), rest, 1e-6, "the value beside one at +inf")


def check_row_derivatives(spec: Relaxation, options: Options) -> None:
    """First derivatives of the rows, reverse and forward mode."""
    if not _applies(spec):
        return
    x = scores(2, 6).requires_grad_()

    def rows(x: torch.Tensor) -> torch.Tensor:
        return topk_matrix(x, 3, spec, **options)

    torch.autograd.gradcheck(rows, (x,), check_forward_ad=True)


def _applies(spec: Relaxation) -> bool:
    return has_rows(spec) and not spec.stochastic


CHECKS = [
    check_rows,
    check_hard_rows,
    check_row_edges,
    check_half_rows,
    check_row_values,
    check_row_derivatives,
]
