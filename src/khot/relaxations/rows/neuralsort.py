"""Neuralsort top-k: a softmax over the linear problem whose solution is the r-th largest score.

    M[r, j] = softmax_j [((n + 1 − 2r) x_j − A_j)/τ],      A_j = Σ_l |x_j − x_l|,      y = Σ_{r ≤ k} M[r]

The sums A need no n × n tensor. With S_j = Σ_l sign(x_j − x_l), the number of scores below minus the number
above, A_j = S_j x_j − Σ_l sign(x_j − x_l) x_l. Both sums come from prefix sums of the sorted row. S is
constant between ties, and sign(0) = 0 at ties, so this form has the right derivatives too. Everything is
relative to the k-th largest score and in float64, because A grows with n and its digits matter.

Rows sum to one; a column may sum to more than one, so weights may exceed 1. Cost: a sort, O(kn) work, and
O(n) memory beyond a block of rows. Reference: Grover, Wang, Zweig & Ermon (2019).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from khot.kernels.sorting import argsort, unsorted
from khot.relaxations._arguments import Number
from khot.relaxations._cumulative import cumulative
from khot.relaxations._problem import relaxed_matrix, relaxed_weights
from khot.relaxations._ranked_rows import Allowed, rows_of, weights_of
from khot.relaxations._small_rows import SmallKernel
from khot.relaxations.registry import Relaxation, register

__all__ = ["neuralsort_matrix", "neuralsort_topk"]


def neuralsort_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by rows of NeuralSort.

    .. math:: y_j = \sum_{r=1}^k \operatorname{softmax}_j
              \Big[\big((n + 1 - 2r)\, x_j - \textstyle\sum_l |x_j - x_l|\big)/\tau\Big]

    with n the number of allowed entries. Weights may exceed 1 (``khot.topk(…, capped=True)`` projects them).

    Units: the temperature divides sums of n differences of scores: at the same τ a longer row is sharper.
    Cost: a sort and O(kn) work, O(n) memory.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, a number or a tensor like ``k``.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, not negative, with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in neuralsort_topk(x, 2, temperature=0.5).tolist()]
        [0.987, 0.107, 0.906]

    Reference: Grover, Wang, Zweig & Ermon (2019), Stochastic Optimization of Sorting Networks via Continuous
    Relaxations.
    """
    return relaxed_weights(
        "neuralsort_topk",
        weights_of(_logits),
        scores,
        k,
        temperature,
        dim,
        mask,
        largest,
        hard,
        dtype=torch.float64,
        kernel=SmallKernel("neuralsort"),
    )


def neuralsort_matrix(
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The rows of `neuralsort_topk`, shape (…, k, n), the entries of ``dim`` last: row r is the r-th best.

    Each row sums to 1; rows beyond the number of allowed entries are 0. The arguments are the same; k is an
    integer.
    """
    return relaxed_matrix(
        "neuralsort_matrix",
        rows_of(_logits),
        scores,
        k,
        temperature,
        dim,
        mask,
        dtype=torch.float64,
        takes_none=True,
    )


def _logits(z: Tensor, allowed: Allowed) -> Callable[[Tensor], Tensor]:
    n = z.shape[-1] if allowed is None else allowed.sum(-1, keepdim=True)
    limit = torch.finfo(z.dtype).max / (8 * (z.shape[-1] + 1))  # a sum of n differences must not overflow
    z = z.clamp(-limit, limit)
    distances = _distance_sums(z, allowed).unsqueeze(-2)

    def logits(ranks: Tensor) -> Tensor:
        slopes = (n + 1 - 2 * ranks).to(z.dtype)
        return slopes.unsqueeze(-1) * z.unsqueeze(-2) - distances

    return logits


def _distance_sums(z: Tensor, allowed: Allowed) -> Tensor:
    """Σ_l |z_j − z_l| at each j, over the allowed l, less what is the same for all j; z must be 0 elsewhere.

    Sums go from 0 outwards, so that scores near 0 keep their digits beside others of any size.
    """
    values, order = argsort(z.detach())
    first, end = _runs(values)
    if allowed is None:
        signs = first + end - z.shape[-1]
    else:
        below = pad(allowed.gather(-1, order).cumsum(-1), (1, 0))
        signs = below.gather(-1, first) + below.gather(-1, end) - below[..., -1:]
    ascending, high = z.gather(-1, order), values >= 0
    upper = pad(cumulative(torch.where(high, ascending, 0)), (1, 0))
    lower = pad(cumulative(torch.where(high, 0, ascending).flip(-1)).flip(-1), (0, 1))
    before = upper - lower
    sums = signs * ascending - before.gather(-1, first) - before.gather(-1, end)
    return unsorted(sums, order)


def _runs(values: Tensor) -> tuple[Tensor, Tensor]:
    """Where the run of values equal to each begins, and where it has ended, in sorted rows."""
    n = values.shape[-1]
    place = torch.arange(n, device=values.device)
    changes = values[..., 1:] != values[..., :-1]
    first = torch.where(changes, place[1:], 0).cummax(-1).values
    end = torch.where(changes, place[1:], n).flip(-1).cummin(-1).values.flip(-1)
    return pad(first, (1, 0)), pad(end, (0, 1), value=n)


SPEC = register(
    Relaxation(
        name="neuralsort",
        weights=neuralsort_topk,
        matrix=neuralsort_matrix,
        bounded=False,
        keeps_order=False,
        smooth="C⁰",
        max_n=10_000,
        max_k=8,
        reference="Grover, Wang, Zweig & Ermon (2019)",
    )
)
