"""All sets of k of n units, one by one."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

__all__ = ["all_k_hot"]

_MOST_SUBSETS = 1_000_000


def all_k_hot(name: str, n: int, k: float, *, fewer: bool) -> Tensor:
    """The k-hot vectors (C(n, k), n) as booleans, in lexicographic order of their indices.

    Args:
        name: the name of the design, for errors.
        n: the number of units.
        k: the number of ones.
        fewer: whether some rows have fewer ones, which is an error.
    """
    if not isinstance(k, int) or fewer:
        got = f"k = {k}" + (" and rows with fewer units to draw" if fewer else "")
        raise NotImplementedError(f"{name}: enumerate_support needs draws of one size, got {got}")
    count = math.comb(n, k)
    if count > _MOST_SUBSETS:
        raise ValueError(
            f"{name}: enumerate_support gives at most {_MOST_SUBSETS} vectors, got C({n}, {k}) = {count}"
        )
    indices = torch.tensor(list(itertools.combinations(range(n), k)), dtype=torch.long).view(count, k)
    return torch.zeros(count, n, dtype=torch.bool).scatter_(-1, indices, True)
