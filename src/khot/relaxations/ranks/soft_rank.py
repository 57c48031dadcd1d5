"""Soft ranks and soft sorting: projections on the permutahedron.

    rank(x) = argmin ½‖r − x/τ‖²  over  r ∈ P(1, 2, …, n),      the convex hull of all permutations,
    sort(x) = argmin ½‖s − ρ/τ‖²  over  s ∈ P(x),               ρ = (n, …, 1),

or with the Kullback–Leibler divergence in place of the square. The solution is exact. Cost: one sort and one
isotonic regression, O(n log n); the backward pass is O(n). Reference: Blondel, Teboul, Berthet & Djolonga
(2020), Fast Differentiable Sorting and Ranking.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.kernels.sorting import TOO_LONG, argsort, unsorted
from khot.relaxations._arguments import (
    Number,
    check_mask,
    check_temperature,
    compute_dtype,
    per_row,
    position,
)
from khot.relaxations._plain_arguments import check_choice, check_switch
from khot.relaxations._temperature import divided, within_range, without_overflow
from khot.relaxations.ranks._isotonic import Projection, project

__all__ = ["Regularization", "check_regularization", "soft_rank", "soft_sort"]

Regularization = Literal["l2", "kl"]
_REGULARIZATIONS = get_args(Regularization)


def soft_rank(
    x: Tensor,
    *,
    regularization: Regularization = "l2",
    temperature: Number | Tensor = 1.0,
    descending: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Differentiable ranks of the entries of ``x`` along ``dim``.

    .. math:: r = \operatorname*{arg\,min}_{r \in \mathcal{P}(1, \dots, n)} \tfrac12 \|r - x/\tau\|^2

    The smallest entry has rank 1, the largest rank n. As τ → 0 the result becomes the exact ranks; as τ
    grows, all ranks become (n + 1)/2. The ranks always sum to n(n + 1)/2, and equal entries have equal ranks.

    Units: the temperature divides ``x``: a difference of τ is worth one rank. Cost: O(n log n), a sort and an
    isotonic regression; the backward pass is O(n).

    Args:
        x: scores, a floating-point tensor of any shape.
        regularization: ``"l2"``, or ``"kl"``: the exponential of the entropic projection on the logarithms.
            With ``"kl"`` descending ranks are not n + 1 minus the ascending ones.
        temperature: > 0, a number or a tensor that broadcasts to ``x.shape`` without ``dim``.
        descending: rank 1 for the largest entry.
        dim: the dimension along which to rank.
        mask: boolean, broadcastable to ``x``; entries with False take no part and get rank 0. (A score of
            −inf does take part.)

    Returns:
        Ranks in the shape and dtype of ``x``.

    Example:
        >>> x = torch.tensor([0.3, 2.0, -1.0])
        >>> soft_rank(x, temperature=0.1).tolist()
        [2.0, 3.0, 1.0]
        >>> [round(v, 2) for v in soft_rank(x, temperature=3.0).tolist()]
        [1.96, 2.52, 1.52]

    Reference: Blondel, Teboul, Berthet & Djolonga (2020), Fast Differentiable Sorting and Ranking.
    """
    name = "soft_rank"
    last = _checked(name, x, temperature, regularization, descending, dim, mask)
    if mask is None and regularization == "l2":
        ranks = _native(name, x, temperature, descending, last)
        if ranks is not None:
            return ranks
    # In float64, as the kernel: of a large score divided by τ float32 has no digits behind the point.
    rows = x.double().movedim(last, -1)
    tau = per_row(name, "temperature", x, within_range(temperature, compute_dtype(x)), last).double()
    n = x.shape[last]
    if n == 0:
        return x.clone()
    allowed = None if mask is None else mask.expand(x.shape).movedim(last, -1)
    # Before scaling: the size of an excluded entry must not matter.
    z = _scaled(rows if allowed is None else torch.where(allowed, rows, 0), tau, descending)
    w = torch.arange(n, 0, -1, dtype=z.dtype, device=z.device)
    if allowed is not None:
        count = allowed.sum(-1, keepdim=True)
        # Below all others, so far that they cannot be pooled with them: no level is below lowest − count.
        lowest = torch.where(allowed, z, torch.inf).amin(-1, keepdim=True)
        lowest = torch.where(count > 0, lowest, 0).detach()
        below = lowest - count - 2 - 1e-3 * lowest.abs()  # also where count + 2 is less than the rounding
        z = torch.where(allowed, z, below)
        w = (count - n + w).clamp_min(1)
    order = argsort(z.detach(), descending=True)[1]
    ranks = project(z.gather(-1, order), w, regularization)
    ranks = unsorted(ranks, order)
    if allowed is not None:
        ranks = torch.where(allowed, ranks, 0)
    return ranks.to(x.dtype).movedim(-1, last)


def soft_sort(
    x: Tensor,
    *,
    regularization: Regularization = "l2",
    temperature: Number | Tensor = 1.0,
    descending: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Differentiable sorted values of ``x`` along ``dim``.

    .. math:: s = \operatorname*{arg\,min}_{s \in \mathcal{P}(x)} \tfrac12 \|s - \rho/\tau\|^2,
              \qquad \rho = (n, \dots, 1)

    As τ → 0 the result becomes the sorted values; as τ grows, all values become the mean.

    Units: the temperature divides the ranks, so it has the units of 1/x. If no gap between neighbouring
    sorted values exceeds 1/τ, the result is exactly the sorted values. Cost: O(n log n), a sort and an
    isotonic regression; the backward pass is O(n).

    Args:
        x: values, a floating-point tensor of any shape. Infinite values keep their places at the ends,
            without a gradient; the finite ones are softly sorted among themselves.
        regularization: ``"l2"`` or ``"kl"`` (applied to the exponentials; the result is the logarithm).
        temperature: > 0, a number or a tensor that broadcasts to ``x.shape`` without ``dim``.
        descending: sort from the largest to the smallest.
        dim: the dimension along which to sort.
        mask: boolean, broadcastable to ``x``; entries with False take no part: the allowed values come first,
            in order, and the remaining places are 0.

    Returns:
        Values in the shape and dtype of ``x``, in order along ``dim``.

    Example:
        >>> soft_sort(torch.tensor([0.3, 2.0, -1.0]), temperature=0.1).tolist()
        [-1.0, 0.3..., 2.0]

    Reference: Blondel, Teboul, Berthet & Djolonga (2020), Fast Differentiable Sorting and Ranking.
    """
    name = "soft_sort"
    last = _checked(name, x, temperature, regularization, descending, dim, mask)
    tau = per_row(name, "temperature", x, within_range(temperature, compute_dtype(x)), last)
    rows = x.to(compute_dtype(x)).movedim(last, -1)
    rows = rows if descending else -rows
    n = rows.shape[-1]
    if n == 0:
        return x.clone()
    coldest = 4 * n / torch.finfo(rows.dtype).max  # below it n/τ is infinite
    targets = torch.arange(n, 0, -1, dtype=rows.dtype, device=rows.device) / tau.clamp_min(coldest)
    targets = targets.expand(rows.shape)
    kind: Projection = "log_kl" if regularization == "kl" else "l2"
    if mask is not None:
        allowed = mask.expand(x.shape).movedim(last, -1)
        values = _sorted_part(rows, targets, allowed, kind)
    elif is_plain(rows) and not bool(rows.isinf().any()):
        values = project(targets, rows.gather(-1, argsort(rows.detach(), descending=True)[1]), kind)
    else:
        values = _sorted_part(rows, targets, torch.ones_like(rows, dtype=torch.bool), kind)
    values = values if descending else 0 - values  # not −0 in places left over
    return values.to(x.dtype).movedim(-1, last)


def _sorted_part(rows: Tensor, targets: Tensor, allowed: Tensor, kind: Projection) -> Tensor:
    """The allowed values in descending order, then 0: +inf, the finite ones softly sorted, −inf."""
    top, bottom = allowed & (rows == torch.inf), allowed & (rows == -torch.inf)
    targets, w, exists = _allowed_first(rows, targets, allowed & ~top & ~bottom)
    values = torch.where(exists, project(targets, w, kind), 0)
    n_top, n_bottom = top.sum(-1, keepdim=True), bottom.sum(-1, keepdim=True)
    place = torch.arange(rows.shape[-1], device=rows.device)
    end = exists.sum(-1, keepdim=True) + n_top  # of the finite ones
    values = values.gather(-1, (place - n_top).clamp_min(0).expand(values.shape))
    values = torch.where(place < n_top, torch.inf, torch.where(place < end, values, 0))
    return torch.where((place >= end) & (place < end + n_bottom), -torch.inf, values)


def _allowed_first(rows: Tensor, targets: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Targets and values in descending order, the allowed ones in front, and which places those take.

    A place left over has the smallest allowed value and a target below every other level, target − value, so
    that it is not pooled with them.
    """
    count = allowed.sum(-1, keepdim=True)
    smallest = torch.where(allowed, rows, torch.inf).amin(-1, keepdim=True)
    smallest = torch.where(count > 0, smallest, 0).detach()
    order = argsort(torch.where(allowed, rows, -torch.inf).detach(), descending=True)[1]
    exists = torch.arange(rows.shape[-1], device=rows.device) < count
    w = torch.where(exists, torch.where(allowed, rows, 0).gather(-1, order), smallest)
    lowest = torch.where(exists, targets - w, torch.inf).amin(-1, keepdim=True)
    below = torch.where(count > 0, lowest, 0).detach() + smallest
    below = below - 1 - 1e-3 * (below.abs() + smallest.abs())  # also where 1 is less than the rounding
    return torch.where(exists, targets, below), w, exists


def _checked(
    name: str,
    x: Tensor,
    temperature: Number | Tensor,
    regularization: str,
    descending: bool,
    dim: int,
    mask: Tensor | None,
) -> int:
    last = position(name, x, dim, "x")
    check_temperature(name, temperature)
    check_regularization(name, regularization)
    check_switch(name, "descending", descending)
    if mask is not None:
        check_mask(name, x, mask)
    return last


def check_regularization(name: str, regularization: str) -> None:
    """Raise unless ``regularization`` is ``"l2"`` or ``"kl"``."""
    check_choice(name, "regularization", regularization, _REGULARIZATIONS)


def _native(name: str, x: Tensor, temperature: Number | Tensor, descending: bool, last: int) -> Tensor | None:
    """Ranks (l2) by the compiled kernel, or None where that cannot be."""
    learned = isinstance(temperature, Tensor)
    if not is_plain(x) or native() is None or x.shape[last] >= TOO_LONG:
        return None
    if learned and (temperature.requires_grad or not is_plain(temperature)):
        return None
    tau = within_range(temperature, compute_dtype(x))
    tau = per_row(name, "temperature", x, tau, last) if learned else float(tau)
    rows = x if last == x.dim() - 1 else x.movedim(last, -1)
    if x.requires_grad and torch.is_grad_enabled():
        ranks = cast("Tensor", _NativeRank.apply(rows, tau, descending))  # pyright: ignore[reportUnknownMemberType]
    else:
        ranks = cpu.soft_rank(rows.to(compute_dtype(x)), tau, descending)[0].to(x.dtype)
    return ranks if rows is x else ranks.movedim(-1, last)


class _NativeRank(torch.autograd.Function):
    """Ranks (l2) by the compiled kernels, in eager and reverse mode."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, temperature: Tensor | float, descending: bool) -> Tensor:
        ranks, order = cpu.soft_rank(x.to(compute_dtype(x)), temperature, descending)
        learned = isinstance(temperature, Tensor)
        ctx.save_for_backward(order, temperature if learned else None)
        ctx.temperature, ctx.descending = None if learned else temperature, descending
        return ranks.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        order, learned = ctx.saved_tensors
        temperature = ctx.temperature if learned is None else learned
        return _jacobian_product(grads[0], order, temperature, ctx.descending), None, None


def _jacobian_product(grad: Tensor, order: Tensor, temperature: Tensor | float, descending: bool) -> Tensor:
    """±(g − the mean of g over the block of each entry)/τ; order as `khot.kernels.cpu.soft_rank` gives it."""
    g = grad.to(compute_dtype(grad))
    if not torch.is_grad_enabled() and cpu.usable(g):
        return cpu.soft_rank_jacobian(g, order, temperature, descending).to(grad.dtype)
    index = torch.where(order < 0, ~order, order)
    place = torch.arange(order.shape[-1], device=order.device).expand(order.shape)
    start = torch.where(order < 0, place, 0).cummax(-1).values
    of_sorted = g.gather(-1, index)
    count = torch.zeros_like(of_sorted).scatter_add(-1, start, torch.ones_like(of_sorted)).gather(-1, start)
    mean = torch.zeros_like(of_sorted).scatter_add(-1, start, of_sorted).gather(-1, start) / count
    centred = torch.where(count > 1, of_sorted - mean, 0) / temperature
    centred = torch.zeros_like(g).scatter(-1, index, centred)
    return (-centred if descending else centred).to(grad.dtype)


def _scaled(rows: Tensor, tau: Tensor, descending: bool) -> Tensor:
    """±x/τ, infinities within the range of the dtype."""
    rows = rows.to(tau.dtype)
    z = divided(rows, without_overflow(tau, rows))
    limit = torch.finfo(z.dtype).max / 4
    return (-z if descending else z).clamp(-limit, limit)
