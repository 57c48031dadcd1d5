"""NDCG loss: one minus a soft normalised discounted cumulative gain.

    L(x, g) = 1 − DCG/IDCG,     DCG = Σ_i w_i g_i / log₂(1 + ρ_i),     IDCG = Σ_{r ≤ k} g_(r) / log₂(1 + r),

with ρ the soft descending ranks of the scores, w the k-hot weights of a relaxed top-k (1 without k), and
g_(r) the r-th largest gain. As τ → 0, ρ become the ranks and w the indicator of the top k, so L becomes
1 − NDCG@k.

Why 0 ≤ L ≤ 1: 1/log₂(1 + ρ) is convex and ρ lies in the permutahedron; DCG is also linear in w, which lies
in the capped simplex. So its maximum is at a permutation and a set of k, where it is at most IDCG. Without w,
every entry beyond k would still have a positive discount; a gate on the ranks instead of w would need a
second temperature, in units of ranks. Cost: two sorts and one evaluation of the operator. References:
Järvelin & Kekäläinen (2002); soft ranks by Blondel, Teboul, Berthet & Djolonga (2020).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from khot.losses._ranking_arguments import ranked_rows
from khot.losses._reduction import Reduction, check_reduction, reduced
from khot.metrics._relevance import Gain, check_gain, check_relevance, relative_gains
from khot.relaxations._arguments import Number, check_temperature
from khot.relaxations._plain_arguments import check_dim, check_integer
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.ranks.soft_rank import Regularization, check_regularization, soft_rank
from khot.relaxations.registry import Relaxation, get

__all__ = ["NDCGLoss", "ndcg_loss"]


def ndcg_loss(
    scores: Tensor,
    relevance: Tensor,
    *,
    k: int | None = None,
    temperature: Number | Tensor = 1.0,
    gain: Gain = "exponential",
    method: str | Relaxation = "sigmoid",
    regularization: Regularization = "l2",
    dim: int = -1,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
    **options: Any,
) -> Tensor:
    r"""One minus a soft NDCG, over all entries or over the ``k`` largest scores.

    .. math:: L = 1 - \frac{\sum_i w_i\, g_i / \log_2(1 + \rho_i)}{\sum_{r \le k} g_{(r)} / \log_2(1 + r)}

    with ρ the soft descending ranks of ``scores``, w its k-hot weights (1 without ``k``), g the gains and
    :math:`g_{(r)}` the r-th largest gain. As τ → 0 it becomes 1 − NDCG@k if no scores are equal
    (:func:`khot.metrics.ndcg_at_k` of the same gain; its default is ``"linear"``); equal scores share their
    mean rank. A row without a relevant entry has loss 0 and no gradient (it counts in the mean).
    Cost: two sorts, and one evaluation of the operator if ``k`` is given.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected.
        relevance: how relevant each entry is, ≥ 0, of the shape of ``scores``. It gets no gradient.
        k: how many ranks count, 1 ≤ k ≤ n; None for all.
        temperature: > 0, of ranks and weights; a number or a tensor that broadcasts to ``scores.shape``
            without ``dim``.
        gain: ``"exponential"``, 2^relevance − 1, or ``"linear"``, the relevance itself.
        method: with ``k``, the relaxation that gives the weights, with its ``options``. Weights that may
            exceed 1 are projected on the capped simplex.
        regularization: of the soft ranks, ``"l2"`` or ``"kl"``.
        dim: the dimension along which to rank.
        mask: boolean, broadcastable to ``scores``; entries with False take no part, neither in the ranks nor
            in the ideal ranking.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.
        options: further options of the method.

    Returns:
        The loss in [0, 1] up to rounding: a scalar, or one per row with ``reduction="none"``.

    Example:
        >>> scores, relevance = torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 2])
        >>> round(ndcg_loss(scores, relevance, temperature=0.01).item(), 4)
        0.3115
        >>> round(ndcg_loss(scores, relevance, k=1, temperature=0.01, gain="linear").item(), 4)
        0.5

    Reference: Järvelin & Kekäläinen (2002), Cumulated Gain-Based Evaluation of IR Techniques; Blondel,
    Teboul, Berthet & Djolonga (2020), Fast Differentiable Sorting and Ranking.
    """
    name = "ndcg_loss"
    _check_settings(name, k, temperature, gain, method, options, regularization, reduction)
    k = None if k is None else int(k)
    rows, wanted, allowed = ranked_rows(name, scores, "relevance", relevance, dim, mask, temperature)
    n = rows.shape[-1]
    if k is not None and k > n:
        raise ValueError(f"{name}: k must satisfy 1 <= k <= n = {n}, got {k}")
    check_relevance(name, wanted)
    gains = relative_gains(wanted, gain, rows.dtype)
    ranks = soft_rank(
        rows, regularization=regularization, temperature=temperature, descending=True, mask=allowed
    )
    found = gains / torch.log2(1 + torch.where(allowed, ranks, 1))
    if k is not None:
        found = found * topk(rows, k, method, temperature=temperature, mask=allowed, capped=True, **options)
    places = torch.arange(1, (n if k is None else k) + 1, dtype=rows.dtype, device=rows.device)
    ideal = (gains.sort(-1, descending=True).values[..., : len(places)] / torch.log2(1 + places)).sum(-1)
    ndcg = found.sum(-1) / torch.where(ideal > 0, ideal, 1)
    return reduced(torch.where(ideal > 0, 1 - ndcg, 0), reduction).to(scores.dtype)


class NDCGLoss(nn.Module):
    """:func:`khot.losses.ndcg_loss` as a module.

    Args:
        k: how many ranks count; None for all.
        temperature: > 0, of ranks and weights.
        gain: ``"exponential"``, 2^relevance − 1, or ``"linear"``, the relevance itself.
        method: with ``k``, the relaxation that gives the weights.
        regularization: of the soft ranks, ``"l2"`` or ``"kl"``.
        dim: the dimension along which to rank.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.
        options: further options of the method.

    Example:
        >>> criterion = NDCGLoss(k=2, temperature=0.01)
        >>> round(criterion(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2, 1, 0]])).item(), 4)
        0.0
    """

    def __init__(
        self,
        *,
        k: int | None = None,
        temperature: float = 1.0,
        gain: Gain = "exponential",
        method: str | Relaxation = "sigmoid",
        regularization: Regularization = "l2",
        dim: int = -1,
        reduction: Reduction = "mean",
        **options: Any,
    ) -> None:
        super().__init__()
        _check_settings("NDCGLoss", k, temperature, gain, method, options, regularization, reduction)
        check_dim("NDCGLoss", dim)
        self.k = k
        self.temperature = temperature
        self.gain: Gain = gain
        self.method = method
        self.regularization: Regularization = regularization
        self.dim = dim
        self.reduction: Reduction = reduction
        self.options = options

    def forward(self, scores: Tensor, relevance: Tensor, mask: Tensor | None = None) -> Tensor:
        """The loss of ``scores`` for entries with this ``relevance``; see :func:`ndcg_loss`."""
        return ndcg_loss(
            scores,
            relevance,
            k=self.k,
            temperature=self.temperature,
            gain=self.gain,
            method=self.method,
            regularization=self.regularization,
            dim=self.dim,
            mask=mask,
            reduction=self.reduction,
            **self.options,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return (
            f"k={self.k}, temperature={self.temperature:g}, gain={self.gain!r}, "
            f"method={get(self.method).name!r}, regularization={self.regularization!r}, dim={self.dim}, "
            f"reduction={self.reduction!r}{options}"
        )


def _check_settings(
    name: str,
    k: int | None,
    temperature: Number | Tensor,
    gain: str,
    method: str | Relaxation,
    options: dict[str, Any],
    regularization: str,
    reduction: Reduction,
) -> None:
    check_reduction(name, reduction)
    check_temperature(name, temperature)
    check_regularization(name, regularization)
    check_gain(name, gain)
    checked_options(name, get(method, name), options)
    if k is None:
        if options:
            raise TypeError(
                f"{name}: {next(iter(options))} is an option of the selection, which there is with k alone"
            )
        return
    check_integer(name, "k", k)
