"""Checks of operators with rows: 'the r-th best' for r = 1 … k."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from khot.relaxations import topk_matrix
from khot.relaxations.facade import has_rows
from khot.relaxations.hard import ranked_indices
from khot.relaxations.registry import Relaxation
from khot.testing.requirements import draw, require, require_close, scores

__all__ = ["CHECKS"]

Options = Mapping[str, Any]


def check_rows(spec: Relaxation, options: Options) -> None:
    """Rows are distributions, their sum are the weights, and those without an entry are 0."""
    if not _applies(spec):
        return
    x = scores(4, 9)
    x[1, 2], x[2, [0, 3]] = math.inf, math.inf
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


def check_hard_rows(spec: Relaxation, options: Options) -> None:
    """The temperature → 0 selects the hard top-k; ``hard=True`` has it in order, and the soft gradient."""
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


CHECKS = [check_rows, check_hard_rows, check_row_derivatives]
