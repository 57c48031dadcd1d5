"""The entries that sigmoid top-k selects, by the kernels, eager and compiled: no dense row of weights.

The forward pass reads a row and writes k places. The gradient of the weights is dense and needs the whole row
again: it is recomputed from the scores and two numbers per row.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels import cpu, operations
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.kernels.sorting import TOO_LONG
from khot.relaxations._arguments import (
    Number,
    check_mask,
    check_temperature,
    compute_dtype,
    directed,
    per_row,
)
from khot.relaxations._chunks import chunks
from khot.relaxations._linearised import must_linearise
from khot.relaxations._temperature import within_range
from khot.relaxations.hard import Order, padded
from khot.relaxations.threshold._functions import weights_gradient
from khot.relaxations.threshold._gates import LOGISTIC

__all__ = ["sigmoid_entries"]

_AT_ONCE = 1 << 17  # entries of a backward pass: what fits in a cache


def sigmoid_entries(
    name: str,
    scores: Tensor,
    k: int,
    temperature: Number | Tensor,
    hard: bool,
    order: Order,
    last: int,
    mask: Tensor | None,
    largest: bool,
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor] | None:
    """Indices, weights and values of k entries, and which of them exist; None if no kernel can be used."""
    tensors = [t for t in (scores, temperature, mask) if isinstance(t, Tensor)]
    compiled = operations.taken()
    n = scores.shape[last]
    if min(k, n) == 0 or n >= TOO_LONG or must_linearise():
        return None
    if not (all(t.is_cpu for t in tensors) if compiled else is_plain(*tensors) and native() is not None):
        return None
    check_temperature(name, temperature)
    dtype = compute_dtype(scores)
    temperature = within_range(temperature, dtype)
    if isinstance(temperature, Tensor):
        temperature = per_row(name, "temperature", scores, temperature, last)
    elif compiled:
        temperature = operations.as_tensor(temperature, dtype)
    if mask is not None:
        check_mask(name, scores, mask)
        mask = mask.expand(scores.shape).movedim(last, -1)
    rows = directed(name, scores, largest).movedim(last, -1).to(dtype)
    few, by_position = min(k, n), order == "position"
    if compiled or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        function = _CompiledEntries if compiled else _NativeEntries
        found = cast(
            "tuple[Tensor, Tensor, Tensor]",
            function.apply(rows, temperature, mask, few, hard, by_position),  # pyright: ignore[reportUnknownMemberType]
        )
    else:
        found = cpu.topk_entries(rows, few, None if hard else temperature, mask, by_position)
    indices, weights, values = found
    if not largest:
        values = 0 - values  # no −0 where a place is missing
    # The k-th weight of m ≥ k allowed entries is at least 1/(m − k + 1), never 0.
    exists = padded(weights.detach() != 0, k)
    weights, values = weights.to(scores.dtype), values.to(scores.dtype)
    return (padded(indices, k), padded(weights, k), padded(values, k)), exists


class _NativeEntries(torch.autograd.Function):
    """(x, temperature, mask, k, hard, by_position) → (indices, weights, values), by the kernel, eager.

    What the weights' gradient needs of a whole row is computed again in the backward pass, from x and two
    numbers a row.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        temperature: Tensor | float,
        mask: Tensor | None,
        k: int,
        hard: bool,
        by_position: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        thresholds = None
        if hard:
            found = cpu.topk_entries(x, k, None, mask, by_position)
        else:
            found, thresholds = cpu.entries_with_thresholds(x, k, temperature, mask, by_position)
        _keep(ctx, x, temperature, mask, found[0], thresholds)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, *grads)


class _CompiledEntries(torch.autograd.Function):
    """The same in a compiled graph."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, temperature: Tensor, mask: Tensor | None, k: int, hard: bool, by_position: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        return operations.topk_entries(x, k, None if hard else temperature, mask, by_position)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        x, temperature, mask, *_ = inputs
        _keep(ctx, x, temperature, mask, output[0], None)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, *grads)


def _keep(
    ctx: Any,
    x: Tensor,
    temperature: Tensor | float,
    mask: Tensor | None,
    indices: Tensor,
    thresholds: Tensor | None,
) -> None:
    ctx.mark_non_differentiable(indices)
    ctx.set_materialize_grads(False)
    learned = temperature if isinstance(temperature, Tensor) else None
    ctx.temperature = None if isinstance(temperature, Tensor) else temperature
    ctx.save_for_backward(x, learned, mask, indices, thresholds)


def _gradients(
    ctx: Any, _: Tensor | None, by_weights: Tensor | None, by_values: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Gradients in x and the temperature, from those in the weights and in the values."""
    x, learned, mask, indices, thresholds = ctx.saved_tensors
    temperature = ctx.temperature if learned is None else learned
    grad_x = grad_temperature = None
    first_order = not torch.is_grad_enabled() and not ctx.needs_input_grad[1]
    if by_weights is not None and thresholds is not None and first_order and is_plain(by_weights):
        grad_x = cpu.entries_jacobian(x, thresholds, indices, by_weights, temperature, mask)
    elif by_weights is not None:
        by_rows = _by_all_rows if torch.is_grad_enabled() or torch.compiler.is_compiling() else _by_some_rows
        grad_x, grad_temperature = by_rows(x, temperature, mask, indices, by_weights, ctx.needs_input_grad[1])
    if by_values is not None:
        exists = x.gather(-1, indices) != -math.inf
        if mask is not None:
            exists = exists & mask.gather(-1, indices)
        spread = torch.zeros_like(x).scatter(-1, indices, torch.where(exists, by_values, 0))
        grad_x = spread if grad_x is None else grad_x + spread
    return grad_x, grad_temperature, None, None, None, None


def _by_all_rows(
    x: Tensor,
    temperature: Tensor | float,
    mask: Tensor | None,
    indices: Tensor,
    by_weights: Tensor,
    learns_temperature: bool,
) -> tuple[Tensor, Tensor | None]:
    """Gradients in x and the temperature, from those in the weights."""
    dense = torch.zeros_like(x).scatter(-1, indices, by_weights)
    return weights_gradient(LOGISTIC, x, indices.shape[-1], temperature, mask, dense, learns_temperature)


def _by_some_rows(
    x: Tensor, temperature: Tensor | float, mask: Tensor | None, *others: Any
) -> tuple[Tensor, Tensor | None]:
    """The same a few rows at a time: of what is dense, only the gradient is ever whole."""
    if x.dim() == 1:
        return _by_all_rows(x, temperature, mask, *others)
    indices, by_weights, learns_temperature = others
    grad_x, grads_temperature = torch.empty_like(x), list[Tensor]()
    for part in chunks(len(x), x[0].numel(), _AT_ONCE):
        grad_x[part], grad_temperature = _by_all_rows(
            x[part],
            temperature[part] if isinstance(temperature, Tensor) else temperature,
            None if mask is None else mask[part],
            indices[part],
            by_weights[part],
            learns_temperature,
        )
        if grad_temperature is not None:
            grads_temperature.append(grad_temperature)
    return grad_x, torch.cat(grads_temperature) if grads_temperature else None
