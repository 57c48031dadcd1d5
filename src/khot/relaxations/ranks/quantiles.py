"""Soft quantiles: what one more unit of budget adds to the sum of the values selected by sigmoid top-k.

    Q(q) = Σ_i [y_i(r + 1) − y_i(r)] x_i,      r = (1 − q)(n − 1),      y(b) = sigmoid_topk(x, b, τ)

The weights in brackets are not negative and sum to one. As τ → 0, y(b) is 1 on the ⌊b⌋ largest values and
b − ⌊b⌋ on the next, so Q interpolates linearly between two neighbouring order statistics, as
``torch.quantile`` does: the minimum at q = 0 and the maximum at q = 1. As τ grows, the weights become 1/n and
every quantile becomes the mean.

Q decreases in r, so quantiles never cross. Indeed Q = ∫ m(b) db over [r, r + 1], where m(b) is the mean of x
under the weights σ′((x − t)/τ) around the threshold t of the budget b. As b grows t falls, and this mean
falls with it, because σ′ is log-concave.

Units: τ divides x, so Q(a x + c; aτ) = a Q(x; τ) + c for a > 0. Differences of weights lose about log₁₀ n
digits, so everything is computed in float64. Cost: two calls of sigmoid top-k for each q, O(n). Reference:
Wijk et al. (2025) for sigmoid top-k.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import Number, check_mask, check_temperature, per_row, position
from khot.relaxations._plain_arguments import check_switch, is_number
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold.sigmoid import sigmoid_topk

__all__ = ["soft_median", "soft_quantile"]


def soft_quantile(
    x: Tensor,
    q: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    keepdim: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Differentiable quantiles of ``x`` along ``dim``, interpolated as in :func:`torch.quantile`.

    .. math:: Q(q) = \sum_i \big[y_i(r + 1) - y_i(r)\big]\, x_i, \qquad r = (1 - q)(n - 1)

    with :math:`y(b)` the weights of :func:`khot.sigmoid_topk` for the budget b. As τ → 0 this becomes
    ``torch.quantile(x, q)``, including the minimum at q = 0 and the maximum at q = 1. If τ is about the
    spread of the values, most entries have a gradient; as τ grows, every quantile becomes the mean. Quantiles
    never decrease in q. (They may decrease slightly in an entry far from the quantile: the gradient sums to
    one but can have negative entries.)

    Units: the temperature divides ``x``: scaling both x and τ by a scales the quantile by a. Cost: O(n), two
    calls of :func:`khot.sigmoid_topk` for each q, in float64.

    Args:
        x: values, a floating-point tensor of any shape. A row with an allowed entry that is not finite gives
            NaN.
        q: in [0, 1]: a number, or a floating-point tensor with at most one dimension.
        temperature: > 0, a number or a tensor that broadcasts to ``x.shape`` without ``dim``.
        dim: the dimension to reduce.
        keepdim: keep it, with length 1.
        mask: boolean, broadcastable to ``x``; entries with False take no part. A row with no allowed entry
            gives 0.

    Returns:
        Quantiles of the shape of ``x`` without ``dim``; if ``q`` has one dimension, it comes first.

    Example:
        >>> x = torch.tensor([4.0, 1.0, 2.0, 9.0])
        >>> soft_quantile(x, torch.tensor([0.0, 0.5, 1.0]), temperature=0.01).tolist()
        [1.0, 3.0, 9.0]
        >>> [round(v, 2) for v in soft_quantile(x, torch.tensor([0.0, 0.5, 1.0])).tolist()]
        [1.55, 2.78, 8.55]
        >>> soft_quantile(x, 0.25, temperature=0.01, mask=x < 5).item()
        1.5
    """
    return _quantile("soft_quantile", x, q, temperature, dim, keepdim, mask)


def soft_median(
    x: Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    keepdim: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Differentiable median of ``x`` along ``dim``: the soft quantile at ½.

    .. math:: m = \sum_i \big[y_i(\tfrac{n + 1}{2}) - y_i(\tfrac{n - 1}{2})\big]\, x_i

    For an even number of values the limit τ → 0 is the mean of the two in the middle, as in NumPy;
    :func:`torch.median` takes the lower of the two.

    Units: the temperature divides ``x``. Cost: O(n), two calls of :func:`khot.sigmoid_topk`, in float64.

    Args:
        x: values, a floating-point tensor of any shape. A row with an allowed entry that is not finite gives
            NaN.
        temperature: > 0, as in :func:`khot.soft_quantile`.
        dim: the dimension to reduce.
        keepdim: keep it, with length 1.
        mask: boolean, broadcastable to ``x``; entries with False take no part. A row with no allowed entry
            gives 0.

    Returns:
        Medians of the shape of ``x`` without ``dim``.

    Example:
        >>> soft_median(torch.tensor([4.0, 1.0, 2.0, 9.0]), temperature=0.01).item()
        3.0
    """
    return _quantile("soft_median", x, 0.5, temperature, dim, keepdim, mask)


def _quantile(
    name: str,
    x: Tensor,
    q: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    keepdim: bool,
    mask: Tensor | None,
) -> Tensor:
    last = position(name, x, dim, "x")
    if x.shape[last] == 0:
        raise ValueError(f"{name}: x must have an entry along dim {dim}, got shape {tuple(x.shape)}")
    check_temperature(name, temperature)
    check_switch(name, "keepdim", keepdim)
    _check_probability(name, q)
    wide = x.double()
    tau = per_row(name, "temperature", wide, temperature, last)
    rows = wide.movedim(last, -1)
    allowed = torch.ones_like(rows, dtype=torch.bool)
    if mask is not None:
        check_mask(name, x, mask)
        allowed = mask.expand(x.shape).movedim(last, -1)
    result = _interpolated(rows, allowed, tau, q).to(x.dtype).movedim(-1, 0)
    if keepdim:
        result = result.unsqueeze(last + 1)
    return result if isinstance(q, Tensor) and q.dim() == 1 else result.squeeze(0)


def _interpolated(rows: Tensor, allowed: Tensor, tau: Tensor, q: Number | Tensor) -> Tensor:
    """Quantiles (…, Q) of the allowed entries of rows (…, n), all in float64."""
    usable = allowed & rows.isfinite()
    count = allowed.sum(-1, keepdim=True)
    ends = (count - 1).clamp_min(0).double()
    share = 1 - torch.as_tensor(q, dtype=torch.float64, device=rows.device).reshape(-1)
    # At the budgets 0 and n a weight has no derivative in the budget: just inside them it has.
    inset = 4 * torch.finfo(ends.dtype).eps * ends if share.requires_grad else 0
    r = inset + share * (ends - 2 * inset)
    budgets = torch.cat([r, r + 1], -1)
    values = torch.where(usable, rows, 0)
    stacked = torch.where(usable, rows, -math.inf).unsqueeze(-2).expand(*budgets.shape, -1)
    y = sigmoid_topk(stacked, budgets, temperature=tau.expand(budgets.shape))
    less, more = y.chunk(2, -2)
    # Relative to about their mean values keep their digits: the weights sum to one. No difference from
    # it is out of range, nor is a sum of halves, and a mean of values is not beyond them.
    largest = torch.finfo(values.dtype).max
    lowest, highest = values.detach().aminmax(dim=-1, keepdim=True)
    centre = (values.detach() / count.clamp_min(1)).sum(-1, keepdim=True)
    centre = torch.minimum(torch.maximum(centre, highest - largest), lowest + largest)
    relative = torch.where(usable, values / 2 - centre / 2, 0)
    # The weights move the result by these; sums of them over a row stay in range too.
    limit = largest / (16 * rows.shape[-1])
    moving = relative * (limit / relative.detach().abs().amax(-1, keepdim=True).clamp_min(limit))
    weights = more - less
    still = weights.detach()
    mean = still @ relative.unsqueeze(-1) + (weights - still) @ moving.unsqueeze(-1)
    halves = centre / 2 + mean.squeeze(-1)
    within = torch.minimum(torch.maximum(halves.detach(), lowest / 2), highest / 2)
    quantiles = 2 * straight_through(halves, within)
    return torch.where((allowed & ~usable).any(-1, keepdim=True), math.nan, quantiles)


def _check_probability(name: str, q: Number | Tensor) -> None:
    if isinstance(q, Tensor):
        if q.dim() > 1 or not q.is_floating_point():
            raise ValueError(
                f"{name}: q must be a number or a floating-point tensor of at most one dimension, "
                f"got {q.dtype} of shape {tuple(q.shape)}"
            )
        if not is_plain(q):
            return
        low, high = q.detach().aminmax()
        if not (low >= 0 and high <= 1):
            raise ValueError(f"{name}: q must lie in [0, 1], got values in [{low.item():g}, {high.item():g}]")
    elif not is_number(q):
        raise TypeError(f"{name}: q must be a number or a tensor, got {q!r}")
    elif not 0 <= q <= 1:
        raise ValueError(f"{name}: q must lie in [0, 1], got {q}")
