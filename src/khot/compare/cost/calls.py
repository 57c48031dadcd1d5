"""One measured call of a side: only forward, or forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from khot.compare.cost.side import BLEND_WIDTH, Mode, Side

__all__ = ["MODES", "NoGradient", "prepare", "result_shape", "upstream"]

MODES: tuple[Mode, ...] = ("forward", "forward+backward")


class NoGradient(RuntimeError):
    """The result of a side does not depend on its input differentiably."""


def result_shape(side: Side, x: Tensor, k: int) -> tuple[int, ...]:
    """The shape of a side's result."""
    if side.result == "blends":
        return (*x.shape[:-1], k, BLEND_WIDTH)
    return (*x.shape[:-1], k) if side.result == "values" else tuple(x.shape)


def upstream(side: Side, x: Tensor, k: int) -> Tensor:
    """A fixed gradient for the result; not constant, because these Jacobians map constants to zero."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(result_shape(side, x, k), generator=generator).to(x.dtype)


def prepare(side: Side, x: Tensor, k: int, mode: Mode) -> Callable[[], tuple[Tensor, Tensor | None]]:
    """The call to measure: it returns the result and, in forward+backward, the gradient of x.

    Everything that can be prepared is prepared here, so that only the side's own work is measured.
    """
    function = side.function
    if mode == "forward":
        scores = x.detach()

        def forward() -> tuple[Tensor, Tensor | None]:
            return function(scores, k), None

        return forward

    leaf = x.detach().clone().requires_grad_()
    grad = upstream(side, x, k)

    def forward_backward() -> tuple[Tensor, Tensor | None]:
        result = function(leaf, k)
        if not result.requires_grad:
            raise NoGradient(f"{side.name} has no gradient")
        return result, torch.autograd.grad(result, leaf, grad)[0]

    return forward_backward
