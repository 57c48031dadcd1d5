"""Functions of khot that are no registered relaxation, or one with other options."""

from __future__ import annotations

from torch import Tensor

import khot
from khot.compare.cost.side import Side
from khot.kernels import sorting

__all__ = ["argsort", "hard_topk", "kth_best", "odd_even_topk", "soft_rank", "sparse_of_norm"]


def odd_even_topk() -> Side:
    """`khot.network_topk` with the network of difftopk's defaults."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.network_topk(x, k, network="odd_even", distribution="cauchy")

    note = "odd-even, Cauchy"
    return Side("khot.network_topk odd-even", "khot", khot.__version__, call, "khot", note=note)


def sparse_of_norm(norm: str) -> Side:
    """`khot.sparse_topk` of another norm than 2."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.sparse_topk(x, k, norm=float(norm))

    return Side(f"khot.sparse_topk norm {norm}", "khot", khot.__version__, call, "khot", note=f"norm={norm}")


def soft_rank() -> Side:
    """`khot.soft_rank` at temperature 1."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.soft_rank(x)

    def along(x: Tensor, k: int, dim: int) -> Tensor:
        return khot.soft_rank(x, dim=dim)

    return Side("khot.soft_rank", "khot", khot.__version__, call, "khot", "ranks", along=along)


def kth_best() -> Side:
    """`khot.kth_best`, the median of each row by all comparisons, at temperature 1."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.kth_best(x.unsqueeze(-1), x, x.shape[-1] // 2)

    return Side("khot.kth_best", "khot", khot.__version__, call, "khot", "values")


def hard_topk() -> Side:
    """`khot.hard_topk`, an indicator without gradient."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.hard_topk(x, k)

    return Side("khot.hard_topk", "khot", khot.__version__, call, "khot", map="hard")


def argsort() -> Side:
    """The argsort that khot's operators use: values and indices, stable."""

    def call(x: Tensor, k: int) -> Tensor:
        return sorting.argsort(x)[1]

    return Side("khot argsort", "khot", khot.__version__, call, "khot", "order", "argsort")
