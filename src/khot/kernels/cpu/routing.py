"""Calls of the kernels of a router."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.cpu.passing import check, compiled_library, memory

__all__ = ["ROUTER_MOST", "router_gradient", "router_topk"]

#: The largest k of these kernels; csrc/kernels.h has the same number.
ROUTER_MOST = 16


def router_topk(x: Tensor, k: int, renormalise: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The indices of the k largest of each row, and their softmax.

    Args:
        x: logits, float32 or float64, shape (rows, n).
        k: at most n, and at most ``ROUTER_MOST``.
        renormalise: take the softmax over the k largest, not over the row.

    Returns:
        int64 indices and weights (rows, k), best first, ties by index, NaN first; and the sums that the
        gradient needs.
    """
    library = compiled_library()
    check("x", x)
    rows, n = x.shape
    x = memory(x)
    weights, sums = x.new_empty(rows, k), x.new_empty(rows, 2)
    indices = torch.empty_like(weights, dtype=torch.int64)
    kernel = library.router_topk_f32 if x.dtype == torch.float32 else library.router_topk_f64
    kernel(
        x.data_ptr(),
        int(renormalise),
        indices.data_ptr(),
        weights.data_ptr(),
        sums.data_ptr(),
        rows,
        n,
        k,
        torch.get_num_threads(),
    )
    return indices, weights, sums


def router_gradient(
    x: Tensor, indices: Tensor, weights: Tensor, sums: Tensor, grad: Tensor, renormalise: bool
) -> Tensor:
    """The gradient in x from the gradient in the weights, with the results of `router_topk`."""
    library = compiled_library()
    check("x", x)
    x, grad = memory(x), memory(grad)
    out = torch.empty_like(x)
    kernel = library.router_gradient_f32 if x.dtype == torch.float32 else library.router_gradient_f64
    kernel(
        x.data_ptr(),
        indices.data_ptr(),
        weights.data_ptr(),
        sums.data_ptr(),
        grad.data_ptr(),
        int(renormalise),
        out.data_ptr(),
        *x.shape,
        indices.shape[-1],
        torch.get_num_threads(),
    )
    return out
