"""A masked weight: what is not kept is 0, and a gradient reaches a set that may be wider."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["masked_weight"]


def masked_weight(weight: Tensor, mask: Tensor, learns: Tensor | None) -> Tensor:
    """``weight`` where ``mask`` is True, else 0; the gradient goes to all of it, or where ``learns`` is True.

    Forward A, backward B ⊇ A, as in Top-KAST: neither is multiplied when it need not be.
    """
    return cast("Tensor", _Masked.apply(weight, mask, learns))  # pyright: ignore[reportUnknownMemberType]


class _Masked(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, mask: Tensor, learns: Tensor | None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return weight * mask

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        learns = inputs[2]
        ctx.everywhere = learns is None
        ctx.save_for_backward(*(() if learns is None else (learns,)))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad if ctx.everywhere else grad * ctx.saved_tensors[0], None, None
