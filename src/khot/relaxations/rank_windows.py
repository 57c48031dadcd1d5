"""Top-k from soft ranks: windows around the ranks 1 … k, whatever the ranks come from.

    M[r, j] = softmax_j [log σ((r + ½ − ρ_j)/w) + log σ((ρ_j − r + ½)/w)],      y = Σ_{r ≤ k} M[r]

The window σ((r + ½ − ρ)/w) − σ((r − ½ − ρ)/w) is that product of two gates times a factor that is the same
for all entries, so rows are finite and sum to one for every width w. The weights are summed over blocks of
rows, forward and backward: O(kn) work, O(n) memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from khot.relaxations.arguments import (
    Number,
    allowed_scores,
    budget,
    check_temperature,
    compute_dtype,
    per_row,
    position,
    within_range,
)
from khot.relaxations.hard import hard_topk
from khot.relaxations.settled import settle
from khot.relaxations.straight_through import straight_through

__all__ = ["RanksOf", "matrix_from_ranks", "weights_from_ranks"]

_NARROW = 1e-30  # a window of this width is hard, and distances divided by it do not overflow
_BLOCK = 1 << 20  # entries of the matrix at a time

RanksOf = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Descending soft ranks (…, n) of finite scores (…, n) at temperatures (…, 1), among those allowed (…, n)."""


def weights_from_ranks(
    name: str,
    ranks_of: RanksOf,
    x: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    window: Number | Tensor | None,
    dim: int,
    mask: Tensor | None,
    hard: bool,
) -> Tensor:
    """The weights of the operator called ``name``."""
    last = position(name, x, dim)
    k_rows = budget(name, x, k, last, integer=True)
    rows = allowed_scores(name, x, mask).to(compute_dtype(x)).movedim(last, -1)
    settled, fixed, _, k_left, _ = settle(rows, k_rows)
    most = x.shape[last] if isinstance(k, Tensor) else int(k)
    ranks, w = _ranks_and_width(name, ranks_of, x, rows, ~settled, temperature, window, last)
    function = _WindowSum if torch.compiler.is_compiling() else _WindowSumForwardMode
    total = cast("Tensor", function.apply(ranks, w, ~settled, k_left, most))  # pyright: ignore[reportUnknownMemberType]
    y = torch.where(settled, fixed, total).to(x.dtype).movedim(-1, last)
    return straight_through(y, hard_topk(x, k, dim=dim, mask=mask)) if hard else y


def matrix_from_ranks(
    name: str,
    ranks_of: RanksOf,
    x: Tensor,
    k: int,
    temperature: Number | Tensor,
    window: Number | Tensor | None,
    dim: int,
    mask: Tensor | None,
    first: int = 1,
) -> Tensor:
    """Soft one-hot rows ``first`` … k (…, k − first + 1, n); those beyond the allowed entries are 0."""
    last = position(name, x, dim)
    budget(name, x, k, last, integer=True)
    rows = allowed_scores(name, x, mask).to(compute_dtype(x)).movedim(last, -1)
    allowed = rows != -math.inf
    ranks, w = _ranks_and_width(name, ranks_of, x, rows, allowed, temperature, window, last)
    r = torch.arange(first, int(k) + 1, dtype=rows.dtype, device=x.device).unsqueeze(-1)
    exists = r <= allowed.sum(-1)[..., None, None]
    return torch.where(exists, _window_rows(ranks, w, allowed, r), 0).to(x.dtype)


def _ranks_and_width(
    name: str,
    ranks_of: RanksOf,
    x: Tensor,
    rows: Tensor,
    allowed: Tensor,
    temperature: Number | Tensor,
    window: Number | Tensor | None,
    last: int,
) -> tuple[Tensor, Tensor]:
    """Ranks (…, n) of the allowed entries and widths (…, 1)."""
    check_temperature(name, temperature)
    if window is not None:
        check_temperature(name, window)
    width = temperature if window is None else window
    tau = per_row(name, "temperature", x, within_range(temperature, rows.dtype), last)
    w = per_row(name, "window", x, within_range(width, rows.dtype), last)
    return ranks_of(_finite(rows, tau), tau, allowed), w.clamp_min(_NARROW)


def _gates(ranks: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """The arguments of the two gates of the windows r (m, 1): (…, m, n)."""
    ranks, w = ranks.unsqueeze(-2), w.unsqueeze(-1)
    return (r + 0.5 - ranks) / w, (ranks - r + 0.5) / w


def _window_rows(ranks: Tensor, w: Tensor, allowed: Tensor, r: Tensor) -> Tensor:
    """Soft one-hot rows (…, m, n) over the allowed entries for the ranks r (m, 1); 0 if there are none."""
    above, below = _gates(ranks, w, r)
    some = allowed.any(-1)[..., None, None]
    logits = torch.where(allowed.unsqueeze(-2) | ~some, logsigmoid(above) + logsigmoid(below), -math.inf)
    return torch.where(some, torch.softmax(logits, -1), 0)


def _finite(rows: Tensor, tau: Tensor) -> Tensor:
    """The scores with +inf far above all others, and 0 in place of −inf, which takes no part."""
    top = torch.where(rows.isfinite(), rows, -math.inf).amax(-1, keepdim=True)
    above = torch.where(top == -math.inf, 0, top) + (rows.shape[-1] + 2) * tau
    return torch.where(rows == math.inf, above.detach(), torch.where(rows == -math.inf, 0, rows))


def _blocks(ranks: Tensor, k_left: Tensor, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The ranks 1 … most in parts r (m, 1), and which of them count (…, m, 1): memory stays O(n)."""
    size = max(1, _BLOCK // max(ranks.numel(), 1))
    for begin in range(1, most + 1, size):
        r = torch.arange(begin, min(begin + size, most + 1), dtype=ranks.dtype, device=ranks.device)
        yield r.unsqueeze(-1), (r <= k_left).unsqueeze(-1)


class _WindowSum(torch.autograd.Function):
    """(ranks, width, allowed, k_left, most) → the sum of the first k_left of `most` window rows."""

    generate_vmap_rule = True

    @staticmethod
    def forward(ranks: Tensor, w: Tensor, allowed: Tensor, k_left: Tensor, most: int) -> Tensor:
        total = torch.zeros_like(ranks)
        for r, counts in _blocks(ranks, k_left, most):
            total = total + torch.where(counts, _window_rows(ranks, w, allowed, r), 0).sum(-2)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.most = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ranks, w, allowed, k_left = ctx.saved_tensors
        grad = grads[0].unsqueeze(-2)
        grad_ranks, grad_w = torch.zeros_like(ranks), torch.zeros_like(w)
        for r, counts in _blocks(ranks, k_left, ctx.most):
            rows = torch.where(counts, _window_rows(ranks, w, allowed, r), 0)
            by_logits = rows * (grad - (rows * grad).sum(-1, keepdim=True))
            by_ranks, by_width = _slopes(ranks, w, r)
            grad_ranks = grad_ranks + (by_logits * by_ranks).sum(-2)
            grad_w = grad_w + (by_logits * by_width).sum((-2, -1)).unsqueeze(-1)
        return grad_ranks, grad_w, None, None, None


class _WindowSumForwardMode(_WindowSum):
    """The same with forward-mode derivatives, which Dynamo does not accept."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Tensor:
        ranks, w, allowed, k_left = ctx.saved_tensors
        d_ranks, d_w = grad_inputs[:2]
        tangent = torch.zeros_like(ranks)
        for r, counts in _blocks(ranks, k_left, ctx.most):
            rows = torch.where(counts, _window_rows(ranks, w, allowed, r), 0)
            by_ranks, by_width = _slopes(ranks, w, r)
            d_logits = torch.zeros_like(rows)
            if d_ranks is not None:
                d_logits = d_logits + by_ranks * d_ranks.unsqueeze(-2)
            if d_w is not None:
                d_logits = d_logits + by_width * d_w.unsqueeze(-1)
            tangent = tangent + (rows * (d_logits - (rows * d_logits).sum(-1, keepdim=True))).sum(-2)
        return tangent


def _slopes(ranks: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of the logits of the windows r in the ranks and in the width, (…, m, n)."""
    above, below = _gates(ranks, w, r)
    of_above, of_below = torch.sigmoid(-above), torch.sigmoid(-below)
    width = w.unsqueeze(-1)
    return (of_below - of_above) / width, -(above * of_above + below * of_below) / width
