"""A round of a tournament with its derivatives: by the kernel for GPUs where it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels import operations
from khot.kernels.rounds import tournament_round, tournament_round_gradient

__all__ = ["played"]


def played(
    v: Tensor, m: Tensor, t: Tensor, size: int, chance: Callable[[Tensor, Tensor], Tensor] | None
) -> tuple[Tensor, Tensor]:
    """`khot.kernels.rounds.tournament_round`; a chance of None is the logistic one, which has the kernel."""
    if chance is not None:
        return tournament_round(v, m, t, size, chance)
    if operations.taken_on_gpu(v):
        return cast("tuple[Tensor, Tensor]", _Round.apply(v, m, t, size))  # pyright: ignore[reportUnknownMemberType]
    return tournament_round(v, m, t, size)


class _Round(torch.autograd.Function):
    """(rows, how many meet, how many are left, their maximum) → (rows after it, shares)."""

    @staticmethod
    def forward(v: Tensor, m: Tensor, t: Tensor, size: int) -> tuple[Tensor, Tensor]:
        return operations.tournament_round(v, m, t, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        v, m, t, _ = inputs
        ctx.save_for_backward(v, m, t)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        twice = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        gradient = tournament_round_gradient if twice else operations.tournament_round_gradient
        return gradient(*ctx.saved_tensors, *grads), None, None, None
