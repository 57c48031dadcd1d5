"""Sides that draw k of n: a design made from inclusion probabilities, and one draw from it.

The probabilities are sigmoid top-k of the case's scores, made once for each shape and k: what is measured is
the check of the parameters and the draw. Conditional Poisson sampling starts from the scores themselves.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

import khot
from khot.compare.cost.side import Side
from khot_bench.sides import log_space_dp

__all__ = ["conditional_poisson", "design", "log_space"]


@functools.lru_cache(maxsize=2)
def _probabilities(shape: tuple[int, ...], dtype: torch.dtype, k: int) -> Tensor:
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return khot.sigmoid_topk(scores, k).to(dtype)


def design(name: str) -> Side:
    """A design of `khot.sample`, from inclusion probabilities."""
    of_logits = "probs" not in khot.designs.get(name).parameters

    def call(x: Tensor, k: int) -> Tensor:
        pi = _probabilities(tuple(x.shape), x.dtype, k)
        if of_logits:
            return khot.sample(logits=pi.log(), k=k, design=name)
        return khot.sample(probs=pi, k=k, design=name)

    return Side(f"khot {name.replace('_', ' ')}", "khot", khot.__version__, call, "khot")


def conditional_poisson() -> Side:
    """`khot.designs.ConditionalPoisson` from natural parameters: the table and one draw."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.designs.ConditionalPoisson(k, logits=x.detach()).sample()

    return Side("khot conditional poisson", "khot", khot.__version__, call, "khot")


def log_space() -> Side:
    """The same by a table in log space, unit by unit, vectorised over the batch."""

    def call(x: Tensor, k: int) -> Tensor:
        return log_space_dp.sample(x.detach(), k)

    note = "unit by unit, vectorised over the batch"
    return Side("log-space table", "khot", khot.__version__, call, "khot", note=note)
