"""Recall loss: the relevant entries should be among the k largest scores.

    L(x, R) = 1 − Σ_{i ∈ R} y_i(x; k) / min(k, |R|),

with y the weights of a relaxed top-k. As τ → 0 it becomes 1 − recall@k, relative to the best that k places
allow. Cost: one evaluation of the operator. Patel, Tolias & Matas (2022), Recall@k Surrogate Loss with Large
Batches and Similarity Mixup, relax the ranks instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from khot.losses._ranking_arguments import ranked_rows
from khot.losses._reduction import Reduction, check_reduction, reduced
from khot.relaxations._arguments import Number, check_at_most, check_budget, check_temperature, per_row
from khot.relaxations._plain_arguments import check_dim
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.registry import Relaxation, get

__all__ = ["RecallLoss", "recall_loss"]


def recall_loss(
    scores: Tensor,
    target: Tensor,
    k: Number | Tensor,
    *,
    method: str | Relaxation = "sigmoid",
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
    **options: Any,
) -> Tensor:
    r"""One minus the share of the relevant entries that are in the relaxed top ``k`` of ``scores``.

    .. math:: L = 1 - \frac{\sum_{i \in R} y_i(x; k)}{\min(k, |R|)}

    A row without a relevant entry has loss 0 and no gradient (it counts in the mean). Cost: one evaluation of
    the operator.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected.
        target: the relevant entries: booleans or numbers of the shape of ``scores``, relevant where not 0. It
            gets no gradient.
        k: how many to select, 0 ≤ k ≤ n; a number or a tensor that broadcasts to ``scores.shape`` without
            ``dim``.
        method: the relaxation, with its ``options``. Weights that may exceed 1 are projected on the capped
            simplex, so that no entry counts more than once.
        temperature: > 0, a number or a tensor like ``k``.
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``scores``; entries with False take no part and are not relevant.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.
        options: further options of the method.

    Returns:
        The loss in [0, 1] up to rounding: a scalar, or one per row with ``reduction="none"``.

    Example:
        >>> scores, relevant = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([True, False, True, False])
        >>> round(recall_loss(scores, relevant, 2, temperature=0.01).item(), 4)
        0.5

    Reference: Patel, Tolias & Matas (2022), Recall@k Surrogate Loss with Large Batches and Similarity Mixup.
    """
    name = "recall_loss"
    check_reduction(name, reduction)
    check_temperature(name, temperature)
    checked_options(name, get(method, name), options)
    rows, wanted, allowed = ranked_rows(name, scores, "target", target, dim, mask, temperature)
    check_budget(name, rows, k, rows.dim() - 1)
    k_rows = per_row(name, "k", rows, k, rows.dim() - 1).squeeze(-1)
    relevant = (wanted != 0) & allowed
    y = topk(rows, k, method, temperature=temperature, mask=allowed, capped=True, **options)
    most = torch.minimum(k_rows, relevant.sum(-1).to(y.dtype))
    share = torch.where(relevant, y, 0).sum(-1) / torch.where(most > 0, most, 1)
    return reduced(torch.where(most > 0, 1 - share, 0), reduction).to(scores.dtype)


class RecallLoss(nn.Module):
    """:func:`khot.losses.recall_loss` as a module.

    Args:
        k: how many to select.
        method: the relaxation.
        temperature: > 0.
        dim: the dimension along which to select.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.
        options: further options of the method.

    Example:
        >>> criterion = RecallLoss(1)
        >>> criterion(torch.zeros(1, 4), torch.tensor([[1, 0, 0, 0]])).item()
        0.75
    """

    def __init__(
        self,
        k: Number,
        *,
        method: str | Relaxation = "sigmoid",
        temperature: float = 1.0,
        dim: int = -1,
        reduction: Reduction = "mean",
        **options: Any,
    ) -> None:
        super().__init__()
        check_reduction("RecallLoss", reduction)
        check_temperature("RecallLoss", temperature)
        check_at_most("RecallLoss", k)
        check_dim("RecallLoss", dim)
        checked_options("RecallLoss", get(method, "RecallLoss"), options)
        self.k = k
        self.method = method
        self.temperature = temperature
        self.dim = dim
        self.reduction: Reduction = reduction
        self.options = options

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """The loss of ``scores`` for the relevant entries ``target``; see :func:`recall_loss`."""
        return recall_loss(
            scores,
            target,
            self.k,
            method=self.method,
            temperature=self.temperature,
            dim=self.dim,
            mask=mask,
            reduction=self.reduction,
            **self.options,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return (
            f"k={self.k}, method={get(self.method).name!r}, temperature={self.temperature:g}, "
            f"dim={self.dim}, reduction={self.reduction!r}{options}"
        )
