"""Soft-rank top-k: windows around the ranks 1 … k.

    ρ = soft_rank(x, descending)                                    ranks, 1 for the largest
    M[r, j] = softmax_j [log σ((r + ½ − ρ_j)/w) + log σ((ρ_j − r + ½)/w)]     row r: 'the r-th best'
    y = Σ_{r ≤ k} M[r]

The rows are finite and sum to one for every width (``_windows.py``). This is the operator of the topknets
project, corrected: the published code pairs 0-based positions with 1-based ranks, so for k = 3 it picks the
ranks 1, 1, 2, and its ``+ 1e-8`` lets rows fade to 0.

With ties, weight leaks: for the ranks 2, 2, 2, 4 a quarter of row 3 lies on the fourth entry. Weights may
exceed 1. Cost: a sort and O(kn). References: the topknets project; Blondel et al. (2020) for the ranks.
"""

from __future__ import annotations

from torch import Tensor

from khot.relaxations._arguments import Number
from khot.relaxations._ranked_rows import Allowed
from khot.relaxations.ranks._windows import RanksOf, matrix_from_ranks, weights_from_ranks
from khot.relaxations.ranks.soft_rank import Regularization, check_regularization, soft_rank
from khot.relaxations.registry import Relaxation, register

__all__ = ["soft_rank_matrix", "soft_rank_topk"]


def soft_rank_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    window: Number | Tensor | None = None,
    regularization: Regularization = "l2",
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by windows around soft ranks.

    .. math:: y_j = \sum_{r=1}^k \operatorname{softmax}_j\big[\log\sigma((r + \tfrac12 - \rho_j)/w)
              + \log\sigma((\rho_j - r + \tfrac12)/w)\big]

    with :math:`\rho` the descending soft ranks. Weights may exceed 1 (``khot.topk(…, capped=True)`` projects
    them).

    Units: the temperature divides the scores, and a difference of τ is worth one rank; the window divides
    differences of ranks. Cost: a sort and O(kn) work, O(n) memory.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, of the ranks; a number or a tensor like ``k``.
        window: > 0, the width of the windows in ranks, a number or a tensor like ``k``; by default the
            temperature.
        regularization: of the ranks, ``"l2"`` or ``"kl"``.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, not negative, with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in soft_rank_topk(x, 2, temperature=0.2).tolist()]
        [0.993, 0.076, 0.931]

    Reference: the topknets project; Blondel, Teboul, Berthet & Djolonga (2020) for the ranks.
    """
    name = "soft_rank_topk"
    check_regularization(name, regularization)
    ranks_of = _ranks(regularization)
    kind = "soft_rank" if regularization == "l2" else None
    return weights_from_ranks(name, ranks_of, scores, k, temperature, window, dim, mask, largest, hard, kind)


def soft_rank_matrix(
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    window: Number | Tensor | None = None,
    regularization: Regularization = "l2",
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The rows of `soft_rank_topk`, shape (…, k, n) with the entries of ``dim`` last: row r is the r-th best.

    Each row sums to 1; rows beyond the number of allowed entries are 0. The arguments are the same; k is an
    integer.
    """
    name = "soft_rank_matrix"
    check_regularization(name, regularization)
    kind = "soft_rank" if regularization == "l2" else None
    ranks_of = _ranks(regularization)
    return matrix_from_ranks(name, ranks_of, scores, k, temperature, window, dim, mask, kind=kind)


def _ranks(regularization: Regularization) -> RanksOf:
    def ranks_of(z: Tensor, allowed: Allowed) -> Tensor:
        return soft_rank(z, regularization=regularization, descending=True, mask=allowed)

    return ranks_of


SPEC = register(
    Relaxation(
        name="soft_rank",
        weights=soft_rank_topk,
        matrix=soft_rank_matrix,
        bounded=False,
        keeps_order=False,
        smooth="C⁰",
        max_n=10_000,
        example_options=({"regularization": "kl"},),
        reference="the topknets project; Blondel et al. (2020)",
    )
)
