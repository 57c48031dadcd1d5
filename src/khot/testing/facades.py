"""Checks of the options that :func:`khot.topk` adds to an operator: ``capped`` and ``largest``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch

from khot.relaxations import hard_topk, topk
from khot.relaxations.registry import Relaxation
from khot.testing.requirements import draw, require, require_close, scores, sum_tolerance

__all__ = ["CHECKS"]

Options = Mapping[str, Any]


def check_capped(spec: Relaxation, options: Options) -> None:
    """``capped=True``: weights in [0, 1] with the right sum, 0 for excluded entries; its gradient if hard."""
    x = scores(4, 9)
    x[0, [2, 5, 6]], x[1, 3:] = -math.inf, -math.inf
    mask = torch.ones(4, 9, dtype=torch.bool)
    mask[2, 1] = False
    allowed = (x != -math.inf) & mask
    for k in (1, 3, 7):
        for temperature in (0.3, 3.0):
            settings: dict[str, Any] = {
                **_seeded(spec),
                **options,
                "temperature": temperature,
                "mask": mask,
                "capped": True,
            }
            y = topk(x, k, spec, **settings)
            where = f"k = {k}, temperature = {temperature}"
            require(y.min() >= 0, f"{where}: capped weight {y.min():.3g} < 0")
            require(y.max() <= 1, f"{where}: capped weight {y.max():.17g} > 1")
            require(not y[~allowed].any(), f"{where}: an excluded entry has a capped weight")
            if spec.sums_to_k:
                worst = (y.sum(-1) - allowed.sum(-1).clamp_max(k)).abs().max().item()
                require(worst <= sum_tolerance(y.dtype, 9, k), f"{where}: capped |Σy − k| = {worst:.3g}")
    leaf = scores(4, 9).requires_grad_()
    hard, soft = (
        topk(leaf, 3, spec, temperature=3.0, capped=True, hard=hard, **_seeded(spec), **options)
        for hard in (True, False)
    )
    if not spec.stochastic:
        require(torch.equal(hard, hard_topk(leaf, 3)), "capped weights with hard=True are not the hard top-k")
    actual, expected = (torch.autograd.grad(y, leaf, scores(4, 9, seed=1))[0] for y in (hard, soft))
    require_close(actual, expected, 1e-12, "gradient of capped weights with hard=True")


def check_largest(spec: Relaxation, options: Options) -> None:
    """``largest=False`` gives the result for the negated scores, in the operator's own function too."""
    x = scores(3, 8)
    x[0, 0], x[1, 1] = math.inf, -math.inf
    for hard in (False, True):
        expected = draw(spec, -x, 3, options, hard=hard)
        smallest = topk(x, 3, spec, largest=False, hard=hard, **_seeded(spec), **options)
        require_close(smallest, expected, 0.0, f"khot.topk with largest=False, hard={hard}")
        if "largest" in inspect.signature(spec.weights).parameters:
            own = draw(spec, x, 3, options, hard=hard, largest=False)
            require_close(own, expected, 0.0, f"largest=False, hard={hard}")


def _seeded(spec: Relaxation) -> dict[str, Any]:
    return {"generator": torch.Generator().manual_seed(0)} if spec.stochastic else {}


CHECKS = [check_capped, check_largest]
