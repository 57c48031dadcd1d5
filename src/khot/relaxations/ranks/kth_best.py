"""The k-th best vector: row k of pairwise top-k, times the vectors.

    Σ_i M[k, i] x_i,   M the rows of ``pairwise.py``.

Cost: O(n²) work in blocks, O(n) memory, forward and backward. Reference: the token-reduction notes of Haurum
et al. (2023), whose hard formula returns nothing, or a sum, on ties; here ties go by index.
"""

from __future__ import annotations

from torch import Tensor

from khot.kernels.sorting import argsort
from khot.relaxations.ranks._windows import matrix_from_ranks
from khot.relaxations.ranks.pairwise import pairwise_ranks

__all__ = ["kth_best"]


def kth_best(
    x: Tensor,
    scores: Tensor,
    k: int,
    *,
    temperature: float = 1.0,
    window: float | None = None,
    hard: bool = False,
) -> Tensor:
    r"""The vector with the ``k``-th largest score, softly: :math:`\sum_i M_{k,i}\, x_i`.

    Args:
        x: vectors, shape (…, n, d).
        scores: their scores, shape (…, n).
        k: which: 1 is the vector with the largest score.
        temperature: > 0, of the comparisons.
        window: > 0, the width of the window; by default the temperature.
        hard: exactly the k-th of a stable descending sort: one vector for each k, also with ties.
            Differentiable in ``x`` alone.

    Returns:
        Shape (…, d).

    Example:
        >>> x = torch.tensor([[10.0], [20.0], [30.0]])
        >>> round(kth_best(x, torch.tensor([0.1, 0.9, 0.5]), 2, temperature=0.05).item(), 1)
        30.0
    """
    n = scores.shape[-1]
    if x.shape[:-1] != scores.shape:
        raise ValueError(
            f"kth_best: scores must have the shape of x without its last dimension, {tuple(x.shape[:-1])}, "
            f"got {tuple(scores.shape)}"
        )
    if not 1 <= k <= n:
        raise ValueError(f"kth_best: k must satisfy 1 <= k <= n = {n}, got {k}")
    if hard:
        chosen = argsort(scores.detach(), descending=True)[1][..., k - 1]
        return x.gather(-2, chosen[..., None, None].expand(*x.shape[:-2], 1, x.shape[-1])).squeeze(-2)
    row = matrix_from_ranks("kth_best", pairwise_ranks, scores, k, temperature, window, -1, None, first=k)
    return (row.to(x.dtype) @ x).squeeze(-2)
