"""Calls on rows of which only a part is here: sums, weights and Jacobian products at a given threshold."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels.cpu.gates import GATE_NUMBERS, GateKind
from khot.kernels.cpu.passing import check, compiled_library, memory

__all__ = ["GateShard", "gate_sums", "gate_weights", "slope_product", "slope_sums"]


class GateShard(NamedTuple):
    r"""Rows with a threshold: their weights are F(a), a = z + offset − fine, z = (x − anchor)/τ.

    Args:
        gate: F, but for the normal one; the sparse gate has the norm 2.
        x: scores, float32 or float64, shape (rows, n), without NaN.
        anchor: (rows, 1), of the type of x, as are
        temperature: τ,
        offset: and
        fine: what is added and taken from it.
    """

    gate: GateKind
    x: Tensor
    anchor: Tensor
    temperature: Tensor
    offset: Tensor
    fine: Tensor


def gate_sums(shard: GateShard, ties_below: Tensor) -> Tensor:
    r"""Sums of each row over the entries below the anchor and over those above it.

    Of the distance of F(a) to 0 or 1 and two derivatives, and 0; for the sparse gate that distance, the
    weights in (0, 1), their number and that of weights at 1. Last the number of entries. Infinite scores
    are left out.

    Args:
        shard: the rows.
        ties_below: boolean (rows, 1), whether scores at the anchor count as below it.

    Returns:
        float64 (rows, 10): five sums below, and five above.
    """
    library = compiled_library()
    x, of_rows = _checked(shard)
    assert ties_below.dtype == torch.bool
    ties_below = memory(ties_below.expand(len(x), 1))
    out = torch.empty(len(x), 10, dtype=torch.float64)
    kernel = library.gate_sums_f32 if x.dtype == torch.float32 else library.gate_sums_f64
    kernel(
        GATE_NUMBERS[shard.gate],
        x.data_ptr(),
        *(each.data_ptr() for each in of_rows),
        ties_below.data_ptr(),
        out.data_ptr(),
        *x.shape,
        torch.get_num_threads(),
    )
    return out


def gate_weights(shard: GateShard) -> Tensor:
    """F(a), of the shape and type of x; of an infinite score that of one as far away as any can be."""
    library = compiled_library()
    x, of_rows = _checked(shard)
    y = torch.empty_like(x)
    kernel = library.gate_weights_f32 if x.dtype == torch.float32 else library.gate_weights_f64
    kernel(
        GATE_NUMBERS[shard.gate],
        *(each.data_ptr() for each in of_rows),
        x.data_ptr(),
        y.data_ptr(),
        *x.shape,
        torch.get_num_threads(),
    )
    return y


def slope_sums(shard: GateShard, grad: Tensor) -> Tensor:
    """Σw, Σwg, Σzw and Σzwg of each row: float64 (rows, 4), w = F′(a) of finite scores and g the gradient.

    Args:
        shard: the rows.
        grad: g, like x.
    """
    library = compiled_library()
    x, of_rows = _checked(shard)
    grad = _like(x, grad)
    out = torch.empty(len(x), 4, dtype=torch.float64)
    kernel = library.slope_sums_f32 if x.dtype == torch.float32 else library.slope_sums_f64
    kernel(
        GATE_NUMBERS[shard.gate],
        *(each.data_ptr() for each in of_rows),
        x.data_ptr(),
        grad.data_ptr(),
        out.data_ptr(),
        *x.shape,
        torch.get_num_threads(),
    )
    return out


def slope_product(shard: GateShard, grad: Tensor, mean: Tensor) -> Tensor:
    """w (g − m)/τ, like x; exactly 0 where w is.

    Args:
        shard: the rows.
        grad: g, like x.
        mean: m, (rows, 1).
    """
    library = compiled_library()
    x, of_rows = _checked(shard)
    grad, mean = _like(x, grad), memory(mean.to(x.dtype).expand(len(x), 1))
    out = torch.empty_like(x)
    kernel = library.slope_product_f32 if x.dtype == torch.float32 else library.slope_product_f64
    kernel(
        GATE_NUMBERS[shard.gate],
        *(each.data_ptr() for each in of_rows),
        x.data_ptr(),
        grad.data_ptr(),
        mean.data_ptr(),
        out.data_ptr(),
        *x.shape,
        torch.get_num_threads(),
    )
    return out


def _checked(shard: GateShard) -> tuple[Tensor, list[Tensor]]:
    """The scores and, one number a row, what comes after them, as memory that a kernel can read."""
    check("x", shard.x)
    x = memory(shard.x)
    of_rows = [memory(each.expand(len(x), 1)) for each in shard[2:]]
    assert all(each.dtype == x.dtype for each in of_rows)
    return x, of_rows


def _like(x: Tensor, grad: Tensor) -> Tensor:
    assert grad.shape == x.shape
    assert grad.dtype == x.dtype
    return memory(grad)
