"""Sides that select vectors of length 32 by their scores; the vectors are made once for each shape."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

import khot
from khot.compare.cost.side import BLEND_WIDTH, Side
from khot.kernels import sorting

__all__ = ["entries", "retrieval", "selection", "sort_and_index_add", "topk_and_indexing"]

_LONGEST_TABLE = 100_000


@functools.cache
def _vectors(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, BLEND_WIDTH, generator=torch.Generator().manual_seed(2), dtype=dtype)


def selection(method: str) -> Side:
    """`khot.select`, as a user calls it, at temperature 1."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.select(_vectors(tuple(x.shape), x.dtype), x, k, method).values

    return Side(f"khot.select, {method}", "khot", khot.__version__, call, "khot", "blends")


def entries(kind: str) -> Side:
    """`khot.topk_entries`: the weights of sigmoid top-k at the k best, or ones with its gradient."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.topk_entries(x, k, hard=kind == "hard").weights

    return Side(f"khot.topk_entries, {kind}", "khot", khot.__version__, call, "khot", "values")


def sort_and_index_add() -> Side:
    """khot's argsort, and the sum of weighted vectors into k slots by one `index_add`."""

    def call(x: Tensor, k: int) -> Tensor:
        order = sorting.argsort(x)[1]
        rows = math.prod(x.shape[:-1])
        slot = order % k + torch.arange(rows).view(*x.shape[:-1], 1) * k
        terms = (x.unsqueeze(-1) * _vectors(tuple(x.shape), x.dtype)).flatten(0, -2)
        sums = terms.new_zeros(rows * k, BLEND_WIDTH).index_add(0, slot.flatten(), terms)
        return sums.view(*x.shape[:-1], k, BLEND_WIDTH)

    return Side("argsort and index_add", "khot", khot.__version__, call, "khot", "blends")


@functools.cache
def _table(dtype: torch.dtype) -> Tensor:
    # As long as any case needs, and made by the first call, a tiny one: no measured call allocates it.
    generator = torch.Generator().manual_seed(2)
    return torch.randn(_LONGEST_TABLE, BLEND_WIDTH, generator=generator, dtype=dtype)


def retrieval(method: str) -> Side:
    """`khot.select` from one table of vectors for all rows, at temperature 1."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.select(_table(x.dtype)[: x.shape[-1]], x, k, method).values

    return Side(f"khot.select, {method}", "khot", khot.__version__, call, "khot", "blends")


def topk_and_indexing() -> Side:
    """`torch.topk` and the vectors at its indices; to have a gradient they are multiplied by their scores."""

    def call(x: Tensor, k: int) -> Tensor:
        best = x.topk(k)
        chosen = _table(x.dtype)[best.indices]
        return chosen * best.values.unsqueeze(-1) if x.requires_grad else chosen

    note = "forward+backward: times the scores"
    return Side("torch.topk and indexing", "torch", torch.__version__, call, "torch", "blends", note=note)
