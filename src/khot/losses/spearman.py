"""Spearman loss: one minus the rank correlation, with soft ranks of the scores.

    L(x, t) = 1 − corr(r(x), rank(t)),

with the Pearson correlation of the soft ranks r and the ranks of the target, where ties share their mean
rank. As τ → 0 it becomes 1 − Spearman's ρ; as τ → ∞ (l2) it becomes 1 − corr(x, rank(t)), because the soft
ranks are then x/τ plus a constant. Cost: two sorts. Reference: Blondel, Teboul, Berthet & Djolonga (2020),
Fast Differentiable Sorting and Ranking.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from khot.losses._ranking_arguments import ranked_rows
from khot.losses._reduction import Reduction, check_reduction, reduced
from khot.relaxations._arguments import Number, check_temperature
from khot.relaxations._plain_arguments import check_dim
from khot.relaxations.ranks.soft_rank import Regularization, check_regularization, soft_rank

__all__ = ["SpearmanLoss", "spearman_loss"]


def spearman_loss(
    scores: Tensor,
    target: Tensor,
    *,
    regularization: Regularization = "l2",
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""One minus Spearman's rank correlation of ``scores`` and ``target``, with soft ranks of ``scores``.

    .. math:: L = 1 - \frac{\langle r - \bar r,\; s - \bar s \rangle}{\|r - \bar r\| \, \|s - \bar s\|},
              \qquad r = \operatorname{soft\_rank}(x/\tau), \quad s = \operatorname{rank}(t)

    Equal targets share the mean of their ranks. The correlation is not defined for a row in which the target
    or the soft ranks do not vary (a constant target, constant scores, fewer than two allowed entries): its
    loss is 1 and its gradient 0. Cost: two sorts.

    Args:
        scores: a floating-point tensor of any shape; larger scores get larger ranks. −inf takes no part.
        target: numbers whose order the scores should have, real and not NaN, of the shape of ``scores``. It
            gets no gradient.
        regularization: of the soft ranks, ``"l2"`` or ``"kl"``.
        temperature: > 0, a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
        dim: the dimension along which to rank.
        mask: boolean, broadcastable to ``scores``; entries with False take no part.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.

    Returns:
        The loss, from 0 (same order) to 2 (opposite order): a scalar, or one per row with
        ``reduction="none"``.

    Example:
        >>> scores, target = torch.tensor([0.1, 0.9, 0.4, 0.7]), torch.tensor([1, 4, 3, 2])
        >>> round(spearman_loss(scores, target, temperature=0.01).item(), 4)
        0.2

    Reference: Blondel, Teboul, Berthet & Djolonga (2020), Fast Differentiable Sorting and Ranking.
    """
    name = "spearman_loss"
    _check_settings(name, regularization, temperature, reduction)
    rows, wanted, allowed = ranked_rows(name, scores, "target", target, dim, mask, temperature)
    ranks = soft_rank(rows, regularization=regularization, temperature=temperature, mask=allowed)
    count = allowed.sum(-1, keepdim=True)
    middle = (count + 1) / 2  # the mean of both: soft ranks have the sum of the hard ones
    a = torch.where(allowed, ranks - middle, 0)
    b = torch.where(allowed, _average_ranks(wanted, allowed).to(a.dtype) - middle, 0)
    var_a, var_b = a.square().sum(-1), b.square().sum(-1)
    # Below this the soft ranks differ by rounding only.
    rounding = torch.finfo(a.dtype).eps * count.squeeze(-1)
    varies = (var_a > count.squeeze(-1) * rounding.square()) & (var_b > 0)
    norms = torch.where(varies, var_a, 1).sqrt() * torch.where(varies, var_b, 1).sqrt()
    correlation = torch.where(varies, (a * b).sum(-1), 0) / norms
    return reduced(1 - correlation.clamp(-1, 1), reduction).to(scores.dtype)


class SpearmanLoss(nn.Module):
    """:func:`khot.losses.spearman_loss` as a module.

    Args:
        regularization: of the soft ranks, ``"l2"`` or ``"kl"``.
        temperature: > 0.
        dim: the dimension along which to rank.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.

    Example:
        >>> criterion = SpearmanLoss(temperature=0.01)
        >>> criterion(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[30, 10, 20]])).item()
        0.0
    """

    def __init__(
        self,
        *,
        regularization: Regularization = "l2",
        temperature: float = 1.0,
        dim: int = -1,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        _check_settings("SpearmanLoss", regularization, temperature, reduction)
        check_dim("SpearmanLoss", dim)
        self.regularization: Regularization = regularization
        self.temperature = temperature
        self.dim = dim
        self.reduction: Reduction = reduction

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """The loss of ``scores`` for the order of ``target``; see :func:`spearman_loss`."""
        return spearman_loss(
            scores,
            target,
            regularization=self.regularization,
            temperature=self.temperature,
            dim=self.dim,
            mask=mask,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"regularization={self.regularization!r}, temperature={self.temperature:g}, dim={self.dim}, "
            f"reduction={self.reduction!r}"
        )


def _check_settings(
    name: str, regularization: str, temperature: Number | Tensor, reduction: Reduction
) -> None:
    check_reduction(name, reduction)
    check_temperature(name, temperature)
    check_regularization(name, regularization)


def _average_ranks(values: Tensor, allowed: Tensor) -> Tensor:
    """Ascending ranks from 1 among those allowed; equal values share the mean of theirs."""
    if values.dtype in (torch.bool, torch.float16, torch.bfloat16):
        values = values.float()
    whole = not values.is_floating_point()
    last = torch.iinfo(values.dtype).max if whole else torch.inf
    values = torch.where(allowed, values, last).contiguous()
    in_order = values.sort(-1).values
    less = torch.searchsorted(in_order, values)
    up_to = torch.searchsorted(in_order, values, right=True)
    # Excluded ones are at the end, perhaps level with the largest allowed.
    return (less + torch.minimum(up_to, allowed.sum(-1, keepdim=True)) + 1) / 2
