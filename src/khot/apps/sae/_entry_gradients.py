r"""Pre-activations and reconstructions at the active latents, with gradients that touch only these.

Active latents are *entries* (row, latent) in the order of the rows: ``indices`` tells which latent,
``starts`` where each row begins. For B tokens with M latents, k of them active, there are B·k entries, and

- pre-activations at the entries, :math:`(x_r - c) \cdot E_i + b_i`, and
- reconstructions, :math:`\sum_{i} a_{ri} D_i`,

have gradients that are sums over entries: over the latents of a token for the input, over the tokens of a
latent for the weights. All are calls of :func:`torch.nn.functional.embedding_bag`. Cost: O(B k d), where the
dense form has three products of O(B M d). The values equal those of the dense form up to the order of sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

__all__ = ["Layout", "entry_values", "layout_of", "weighted_rows"]


class Layout(NamedTuple):
    """The entries ordered by rows, and the same entries ordered by latents.

    ``indices`` (E,) are the latents of the entries, ``rows`` (E,) their rows, ``starts`` (B,) where each row
    begins; ``by_latent`` (E,) orders the entries by latent, and ``latent_starts`` (M,) tells where each
    latent begins in that order.
    """

    indices: Tensor
    starts: Tensor
    rows: Tensor
    by_latent: Tensor
    latent_starts: Tensor


def layout_of(indices: Tensor, starts: Tensor, rows: Tensor, latents: int) -> Layout:
    """The layout of entries (E,) that are ordered by rows."""
    ordered, by_latent = indices.sort(stable=True)
    latent_starts = torch.searchsorted(ordered, torch.arange(latents, device=indices.device))
    return Layout(indices, starts, rows, by_latent, latent_starts)


def entry_values(
    values: Tensor, inputs: Tensor, centre: Tensor | None, weight: Tensor, bias: Tensor, layout: Layout
) -> Tensor:
    """``values`` (E,), the pre-activations at the entries, with their gradients.

    Args:
        values: the pre-activations, computed without a graph.
        inputs: x (B, d).
        centre: the vector subtracted from each input, or None.
        weight: the weight of the encoder, (M, d).
        bias: the bias of the encoder, (M,).
        layout: the layout of the entries.
    """
    if not torch.is_grad_enabled():  # where Dynamo cannot trace these functions either
        return values
    return cast(Tensor, _EntryValues.apply(values, inputs, centre, weight, bias, *layout))  # pyright: ignore[reportUnknownMemberType]


def weighted_rows(values: Tensor, table: Tensor, layout: Layout) -> Tensor:
    """For each row, the sum (B, d) over its entries of vectors in ``table`` (M, d) times ``values`` (E,)."""
    if not torch.is_grad_enabled():
        return _bags(layout.indices, table, layout.starts, values)
    return cast(Tensor, _WeightedRows.apply(values, table, *layout))  # pyright: ignore[reportUnknownMemberType]


def _bags(indices: Tensor, table: Tensor, starts: Tensor, values: Tensor) -> Tensor:
    return functional.embedding_bag(
        indices, table, starts, per_sample_weights=values.to(table.dtype), mode="sum"
    )


class _EntryValues(torch.autograd.Function):
    """Its value was computed with the selection; here are its gradients."""

    @staticmethod
    def forward(
        values: Tensor, inputs: Tensor, centre: Tensor | None, weight: Tensor, bias: Tensor, *layout: Tensor
    ) -> Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, x, centre, weight, _, *layout = inputs
        ctx.save_for_backward(x, centre, weight, *layout)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, centre, weight, *rest = ctx.saved_tensors
        layout = Layout(*rest)
        _, for_x, for_centre, for_weight, for_bias, *_ = ctx.needs_input_grad
        by_x = by_centre = by_weight = None
        by_bias = weight.new_zeros(len(weight)).index_add_(0, layout.indices, grad.to(weight.dtype))
        if for_weight:
            centred = x if centre is None else x - centre
            order = layout.by_latent
            by_weight = _bags(layout.rows[order], centred.to(weight.dtype), layout.latent_starts, grad[order])
        if for_x:
            by_x = _bags(layout.indices, weight, layout.starts, grad).to(x.dtype)
        if for_centre and centre is not None:
            by_centre = -(by_bias @ weight)
        return None, by_x, by_centre, by_weight, by_bias if for_bias else None, *[None] * 5


class _WeightedRows(torch.autograd.Function):
    """``embedding_bag`` with a gradient for the table that is summed latent by latent."""

    @staticmethod
    def forward(values: Tensor, table: Tensor, *layout: Tensor) -> Tensor:
        parts = Layout(*layout)
        return _bags(parts.indices, table, parts.starts, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        values, table, *rest = ctx.saved_tensors
        layout = Layout(*rest)
        by_values = by_table = None
        grad = grad.contiguous()
        if ctx.needs_input_grad[0]:
            by_values = torch.ops.aten._embedding_bag_per_sample_weights_backward(
                grad, table, layout.indices, layout.starts, layout.rows, 0
            ).to(values.dtype)
        if ctx.needs_input_grad[1]:
            order = layout.by_latent
            by_table = _bags(layout.rows[order], grad, layout.latent_starts, values[order])
        return by_values, by_table, *[None] * 5
