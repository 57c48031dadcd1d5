"""Pairwise top-k: ranks from all pairwise comparisons.

    r_i = 1 + Σ_{j ≠ i} σ((m_j − m_i)/τ)

and windows around the ranks 1 … k as in ``_windows.py``. The term j = i is left out: σ(0) = ½ would shift
every rank. Cost: O(n²) work in blocks, O(n) memory, forward and backward; for long rows on the CPU nearly
linear work (``_comparison_sums.py``). Reference: the token-reduction notes of Haurum et al. (2023). On ties,
their hard formula returns nothing or a sum; here ties go by index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import Number
from khot.relaxations._chunks import at_once, chunks
from khot.relaxations._linearised import motion, must_linearise
from khot.relaxations._ranked_rows import Allowed, where_allowed
from khot.relaxations.ranks._comparison_sums import MANY, slope_sums, step_sums
from khot.relaxations.ranks._windows import matrix_from_ranks, weights_from_ranks
from khot.relaxations.registry import Relaxation, register

__all__ = ["pairwise_matrix", "pairwise_ranks", "pairwise_topk"]

_AT_ONCE = 1 << 16  # comparisons of a row: they fit the cache


def pairwise_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    window: Number | Tensor | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by pairwise comparisons.

    .. math:: \rho_i = 1 + \sum_{j \ne i} \sigma\big((x_j - x_i)/\tau\big)

    and windows around the ranks 1 … k, as in :func:`khot.soft_rank_topk`. Weights may exceed 1.

    Units: the temperature divides differences of scores, the window divides differences of ranks. Cost: O(n²)
    work, nearly linear for long rows on the CPU; O(n) memory.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, of the comparisons; a number or a tensor like ``k``.
        window: > 0, the width of the windows in ranks, a number or a tensor like ``k``; by default the
            temperature.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, not negative, with sum min(k, allowed).

    Example:
        >>> [round(v, 3) for v in pairwise_topk(torch.tensor([3.0, 1.0, 2.0]), 2, temperature=0.2).tolist()]
        [0.995, 0.078, 0.927]

    Reference: the token-reduction notes of Haurum, Escalera, Taylor & Moeslund (2023).
    """
    return weights_from_ranks(
        "pairwise_topk", pairwise_ranks, scores, k, temperature, window, dim, mask, largest, hard, "pairwise"
    )


def pairwise_matrix(
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    window: Number | Tensor | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The rows of `pairwise_topk`, shape (…, k, n): row r is the r-th best, and sums to 1."""
    return matrix_from_ranks(
        "pairwise_matrix", pairwise_ranks, scores, k, temperature, window, dim, mask, kind="pairwise"
    )


def pairwise_ranks(z: Tensor, allowed: Allowed) -> Tensor:
    """Ranks among the allowed entries; the others are placed far below."""
    z = where_allowed(allowed, z, torch.finfo(z.dtype).min / 4)
    if must_linearise():
        return _PairwiseRanks.forward(z.detach()) + _product(z.detach(), motion(z))
    function = _PairwiseRanks if torch.compiler.is_compiling() else _PairwiseRanksForwardMode
    return cast("Tensor", function.apply(z))  # pyright: ignore[reportUnknownMemberType]


def _differences(z: Tensor, part: slice, out: Tensor | None = None) -> Tensor:
    """z_j − z_i for i in the part (rows) and all j (columns); in the rows of ``out`` if there is one."""
    length = part.stop - part.start
    out = None if out is None else out.narrow(-2, 0, length)
    return torch.sub(z.unsqueeze(-2), z.narrow(-1, part.start, length).unsqueeze(-1), out=out)


def _product(z: Tensor, v: Tensor) -> Tensor:
    """Σ_j h′(z_j − z_i)(v_j − v_i) at each i: the Jacobian, which is symmetric, times v."""
    if not torch.is_grad_enabled() and is_plain(z, v):
        quickly = slope_sums(z, v) if z.shape[-1] >= MANY else None
        return _product_in_place(z, v) if quickly is None else quickly

    def rows(part: slice) -> Tensor:
        step = torch.sigmoid(_differences(z, part))
        return (step * (1 - step) * _differences(v, part)).sum(-1)

    return _by_blocks(rows, z * v)  # batched under vmap if either is


def _product_in_place(z: Tensor, v: Tensor) -> Tensor:
    """The same without a new block for every operation, which takes longer than the operation."""
    slopes, factors = _scratch(z), _scratch(z)

    def rows(part: slice) -> Tensor:
        step = _differences(z, part, slopes).sigmoid_()
        rest = torch.sub(1, step, out=factors.narrow(-2, 0, part.stop - part.start))
        return step.mul_(rest).mul_(_differences(v, part, factors)).sum(-1)

    return _by_blocks(rows, z)


def _scratch(z: Tensor) -> Tensor:
    """Room for the comparisons of the largest part."""
    n = z.shape[-1]
    return z.new_empty(*z.shape[:-1], min(n, at_once(n, _AT_ONCE)), n)


def _by_blocks(rows: Callable[[slice], Tensor], like: Tensor) -> Tensor:
    """What ``rows`` gives for each part of a row, in one tensor of that shape.

    Written into place, part by part: small results kept in a list lie between the freed blocks of comparisons
    in memory, which then is not used again, and the process grows as n².
    """
    result = torch.zeros_like(like)
    n = like.shape[-1]
    for part in chunks(n, n, _AT_ONCE):
        result.narrow(-1, part.start, part.stop - part.start).copy_(rows(part))
    return result


class _PairwiseRanks(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        # The sum over all j has σ(0) = ½ for j = i in it.
        if is_plain(z) and z.shape[-1] >= MANY and (sums := step_sums(z)) is not None:
            return sums + 0.5
        scratch = _scratch(z) if is_plain(z) else None
        return _by_blocks(lambda part: 0.5 + _differences(z, part, scratch).sigmoid_().sum(-1), z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return _product(z, grads[0])


class _PairwiseRanksForwardMode(_PairwiseRanks):
    """The same with forward-mode derivatives, which Dynamo does not accept."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Tensor:
        (z,) = ctx.saved_tensors
        return _product(z, grad_inputs[0])


SPEC = register(
    Relaxation(
        name="pairwise",
        weights=pairwise_topk,
        matrix=pairwise_matrix,
        bounded=False,
        keeps_order=False,
        smooth="C∞",
        max_n=10_000,
        reference="the token-reduction notes of Haurum et al. (2023)",
    )
)
