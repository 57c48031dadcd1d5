"""Calls of operators on short rows."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from khot.kernels.cpu.passing import check, compiled_library, memory, number_or_address

__all__ = ["SmallKind", "small_rows"]

SmallKind = Literal[
    "softsort",
    "iterative",
    "neuralsort",
    "successive_softmax",
    "network",
    "pairwise",
    "soft_rank",
    "successive_halving",
]
_KINDS: dict[SmallKind, int] = {
    "softsort": 0,
    "iterative": 1,
    "neuralsort": 2,
    "successive_softmax": 3,
    "network": 4,
    "pairwise": 5,
    "soft_rank": 6,
    "successive_halving": 7,
}


def small_rows(
    kind: SmallKind,
    x: Tensor,
    k: int,
    temperature: float | Tensor,
    grad: Tensor | None = None,
    *,
    layers: Tensor | None = None,
    cauchy: bool = False,
    window: float | Tensor = 1.0,
    matrix: bool = False,
) -> Tensor | None:
    """The weights of an operator with one row per rank, or their gradient.

    Args:
        kind: the operator.
        x: scores, float32 or float64, shape (..., n).
        k: 1 ≤ k ≤ n.
        temperature: the temperature of the operator, for all rows, or float64 for each row.
        grad: the gradient of the weights, like x; then the gradient of x is returned.
        layers: for a network: first wire, distance, groups and whether mirrored, int64 (depth, 4).
        cauchy: for a network: the Cauchy distribution instead of the logistic one.
        window: the width of windows around ranks, for all rows, or float64 for each row.
        matrix: return the k rows (..., k, n) that add up to the weights; not for networks and successive
            halving.

    Returns:
        Weights or a gradient like x, or the rows; None if a score is not finite, huge, or outside the range
        of the kernel's exponentials.
    """
    library = compiled_library()
    check("x", x)
    x = memory(x)
    grad = None if grad is None else memory(grad)
    n = x.shape[-1]
    out = x.new_empty((*x.shape[:-1], k, n)) if matrix else torch.empty_like(x)
    kernel = library.small_rows_f32 if x.dtype == torch.float32 else library.small_rows_f64
    ordinary = kernel(
        _KINDS[kind],
        x.data_ptr(),
        0 if grad is None else grad.data_ptr(),
        number_or_address(temperature),
        number_or_address(window),
        0 if layers is None else layers.data_ptr(),
        0 if layers is None else len(layers),
        int(cauchy),
        int(matrix),
        out.data_ptr(),
        x.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return out if ordinary else None
