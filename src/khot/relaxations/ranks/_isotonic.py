"""Differentiable projection on the permutahedron: the basis of soft ranks and soft sorting.

For s and w in decreasing order, with blocks B from isotonic regression (csrc/isotonic.cpp),

    l2        p = s − v,        v_B = mean of (s − w) over B
    kl        p = exp(s − v),   v_B = log Σ_B e^s − log Σ_B w       for w > 0
    log_kl    p = s − v,        v_B = log Σ_B e^s − log Σ_B e^w

With h = g·∂p/∂(s − v) and the shares qᵢ, rᵢ = 1/|B| (l2) or the softmax of s and of w within B (kl), the
gradients are hᵢ − qᵢ Σ_B h in s and rᵢ Σ_B h in w (not for kl, where w is constant). Cost: O(n) in the
compiled kernel, O(n²) memory in torch operations.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels import cpu, operations
from khot.kernels.availability import is_plain
from khot.kernels.cpu import Projection
from khot.relaxations._cumulative import cumulative
from khot.relaxations._linearised import motion, must_linearise

__all__ = ["Projection", "project"]


def project(s: Tensor, w: Tensor, kind: Projection) -> Tensor:
    """The projection of ``s`` (…, n) on the permutahedron of ``w`` (…, n), both sorted descending."""
    if must_linearise():
        still = s.detach(), w.detach().expand(s.shape)
        p, start = _Project.forward(*still, kind)
        return p + _tangent(*still, p, start, kind, motion(s), motion(w).expand(s.shape))
    function = _Project if torch.compiler.is_compiling() else _ProjectForwardMode
    return cast("tuple[Tensor, Tensor]", function.apply(s, w.expand(s.shape), kind))[0]  # pyright: ignore[reportUnknownMemberType]


def _portable(s: Tensor, w: Tensor, kind: Projection) -> tuple[Tensor, Tensor]:
    """By the min-max formula, v_i = min over j ≤ i of max over k ≥ i of the level of j … k."""
    n = s.shape[-1]
    if n == 0:
        return s.clone(), s.long()
    wide_s, wide_w = s.double(), w.double()
    place = torch.arange(n, device=s.device)
    after = place.unsqueeze(0) >= place.unsqueeze(1)  # [j, k]: k ≥ j
    if kind == "l2":
        sums = cumulative(torch.where(after, (wide_s - wide_w).unsqueeze(-2), 0))
        levels = sums / (place.unsqueeze(0) - place.unsqueeze(1) + 1).clamp_min(1)
    else:
        levels = _window_lse(wide_s, after)
        levels = levels - _window_lse(wide_w if kind == "log_kl" else wide_w.log(), after)
    low = -torch.inf
    best = torch.where(after, levels, low).flip(-1).cummax(-1).values.flip(-1)  # [j, i]: max over k ≥ i
    v = torch.where(after, best, torch.inf).amin(-2)
    first = torch.ones_like(v, dtype=torch.bool)
    first = torch.cat([first[..., :1], v[..., 1:] != v[..., :-1]], -1)
    start = torch.where(first, place.expand(v.shape), 0).cummax(-1).values
    # Not s − v, which cancels for large s: within a block, relative to its first entry.
    relative = wide_s - wide_s.gather(-1, start)
    if kind == "l2":
        count = _block_sums(torch.ones_like(v), start)
        p = relative + _block_sums(wide_w - relative, start) / count
    else:
        of_s = _block_sums(relative.exp(), start)
        if kind == "kl":
            p = relative.exp() * (_block_sums(wide_w, start) / of_s)
        else:
            first_w = wide_w.gather(-1, start)
            p = relative + first_w + (_block_sums((wide_w - first_w).exp(), start) / of_s).log()
    return p.to(s.dtype), start


def _window_lse(x: Tensor, after: Tensor) -> Tensor:
    return torch.where(after, x.unsqueeze(-2), -torch.inf).logcumsumexp(-1)


def _block_sums(values: Tensor, start: Tensor) -> Tensor:
    if not torch.is_grad_enabled() and cpu.usable(values) and is_plain(start):
        return cpu.block_sums(values, start)
    if operations.taken(values):
        return operations.block_sums(values, start)
    return torch.zeros_like(values).scatter_add(-1, start, values).gather(-1, start)


def _shares(x: Tensor, start: Tensor, kind: Projection) -> Tensor:
    """How the entries of a block share its level: equally, or as the softmax of x within it."""
    terms = torch.ones_like(x) if kind == "l2" else (x - x.gather(-1, start)).exp()
    return terms / _block_sums(terms, start)


def _tangent(
    s: Tensor,
    w: Tensor,
    p: Tensor,
    start: Tensor,
    kind: Projection,
    ds: Tensor | None,
    dw: Tensor | None,
) -> Tensor:
    """How the projection moves with s and w (not for kl, where w is constant)."""
    tangent = torch.zeros_like(s)
    if ds is not None:
        tangent = ds - _block_sums(_shares(s, start, kind) * ds, start)
    if dw is not None and kind != "kl":
        tangent = tangent + _block_sums(_shares(w, start, kind) * dw, start)
    return tangent * p if kind == "kl" else tangent


class _Project(torch.autograd.Function):
    """(s, w, kind) → (projection, start of the block of each entry)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(s: Tensor, w: Tensor, kind: Projection) -> tuple[Tensor, Tensor]:
        if cpu.usable(s, w):
            return cpu.isotonic(s, w, kind)
        if operations.taken(s, w):
            return operations.isotonic(s, w, kind)
        return _portable(s, w, kind)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        s, w, ctx.kind = inputs
        p, start = output
        ctx.mark_non_differentiable(start)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(s, w, p, start)
        ctx.save_for_forward(s, w, p, start)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        s, w, p, start = ctx.saved_tensors
        if grads[0] is None:
            return None, None, None
        h = grads[0] * p if ctx.kind == "kl" else grads[0]
        total = _block_sums(h, start)
        grad_w = _shares(w, start, ctx.kind) * total if ctx.needs_input_grad[1] else None
        return h - _shares(s, start, ctx.kind) * total, grad_w, None


class _ProjectForwardMode(_Project):
    """The same with forward-mode derivatives, which Dynamo does not accept."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor, None]:
        ds, dw, _ = cast("tuple[Tensor | None, ...]", grad_inputs)
        s, w, p, start = ctx.saved_tensors
        return _tangent(s, w, p, start, ctx.kind, ds, dw), None
