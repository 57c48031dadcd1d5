"""Sound bounds on ranks and on the k-th best when scores are only known to lie in intervals.

These are for verifying networks, not for training them. Entry a *surely beats* b if lb_a > ub_b, or if
lb_a = ub_b and a comes first. Then

    rank_min_i = 1 + #{j surely beats i},     rank_max_i = n − #{j : i surely beats j},

which is sound and tight: some scores in the box reach each bound. Cost: O(n log n). The scalar bounds are
lines a·x + b below and above a step or an indicator on an interval, for linear relaxations of a whole
network. Their offsets are padded by 4 units in the last place. Reference: the token-reduction notes of Haurum
et al. (2023).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels.sorting import unsorted
from khot.relaxations._arguments import check_temperature, position
from khot.relaxations._cumulative import cumulative
from khot.relaxations._plain_arguments import check_floating, is_integer

__all__ = ["Lines", "RankBounds", "delta_bounds", "heaviside_bounds", "kth_best_bounds", "rank_bounds"]


class RankBounds(NamedTuple):
    """The result of :func:`khot.rank_bounds`.

    ``rank_min`` and ``rank_max`` are the lowest and highest rank that each entry can have; 1 is the largest
    score. If k was given, ``kept`` is True for entries that are always among the k largest, ``dropped`` for
    those that never are, and ``undecided`` for the others; without k these three are None.

    Example:
        >>> bounds = rank_bounds(torch.tensor([2.0, 0.0]), torch.tensor([3.0, 1.0]), k=1)
        >>> bounds.rank_min.tolist(), bounds.kept.tolist(), bounds.dropped.tolist()
        ([1, 2], [True, False], [False, True])
    """

    rank_min: Tensor
    rank_max: Tensor
    kept: Tensor | None = None
    dropped: Tensor | None = None
    undecided: Tensor | None = None


class Lines(NamedTuple):
    """Two lines that enclose a function h on an interval.

    ``lower_slope``·x + ``lower_offset`` ≤ h(x) ≤ ``upper_slope``·x + ``upper_offset`` for x in the interval;
    each field is a tensor of the shape of the intervals.

    Example:
        >>> lines = heaviside_bounds(torch.tensor([1.0]), torch.tensor([2.0]))  # the step is 1 here
        >>> lines.lower_slope.tolist(), round(lines.lower_offset.item(), 4)
        ([0.0], 1.0)
    """

    lower_slope: Tensor
    lower_offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor


def rank_bounds(lb: Tensor, ub: Tensor, k: int | None = None) -> RankBounds:
    r"""Bounds on the descending ranks of scores in [lb, ub]; ties go by index.

    The bounds are sound and tight. Cost: O(n log n).

    Args:
        lb: the smallest value each score can have, shape (…, n).
        ub: the largest value each score can have, same shape.
        k: if given, also tell which entries are among the k largest for all scores in the box (``kept``), for
            none (``dropped``), or for some (``undecided``).

    Returns:
        :class:`RankBounds`: integer ranks of the shape of ``lb``, and booleans, or None without ``k``.

    Example:
        >>> lb, ub = torch.tensor([2.0, 0.0, 1.0]), torch.tensor([3.0, 1.5, 1.8])
        >>> bounds = rank_bounds(lb, ub, k=1)
        >>> bounds.rank_min.tolist(), bounds.rank_max.tolist(), bounds.kept.tolist()
        ([1, 2, 2], [1, 3, 3], [True, False, False])
    """
    _check_box("rank_bounds", "lb", lb, "ub", ub)
    position("rank_bounds", lb, -1, "lb")
    n = lb.shape[-1]
    if k is not None:
        _check_rank("rank_bounds", k, 0, n)
    # Values become integers with the same order, so that (value, index) is one integer.
    place = torch.arange(n, device=lb.device)
    both = torch.cat([lb, ub], -1)
    order = both.argsort(stable=True, dim=-1)
    in_order = both.gather(-1, order)
    steps = torch.cat([torch.zeros_like(in_order[..., :1], dtype=torch.bool), in_order.diff(dim=-1) > 0], -1)
    level = unsorted(cumulative(steps), order)
    low, high = level[..., :n] * n, level[..., n:] * n
    low_keys, high_keys = (low + place).sort(-1).values, (high + place).sort(-1).values
    # j beats i: lb_j above ub_i, or level with it and j < i.
    above = n - torch.searchsorted(low_keys, (high + n).contiguous())
    level_before = torch.searchsorted(low_keys, (high + place).contiguous()) - torch.searchsorted(
        low_keys, high.contiguous()
    )
    rank_min = 1 + above + level_before
    # i beats j: ub_j below lb_i, or level with it and j > i.
    below = torch.searchsorted(high_keys, low.contiguous())
    level_after = torch.searchsorted(high_keys, (low + n).contiguous()) - torch.searchsorted(
        high_keys, (low + place + 1).contiguous()
    )
    rank_max = n - below - level_after
    if k is None:
        return RankBounds(rank_min, rank_max)
    kept, dropped = rank_max <= k, rank_min > k
    return RankBounds(rank_min, rank_max, kept, dropped, ~(kept | dropped))


def kth_best_bounds(x_lb: Tensor, x_ub: Tensor, m_lb: Tensor, m_ub: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Bounds on each coordinate of the k-th best of n vectors, when vectors and scores lie in boxes.

    Cost: O(n log n + nd).

    Args:
        x_lb: the smallest value of each coordinate, shape (…, n, d).
        x_ub: the largest value of each coordinate, same shape.
        m_lb: the smallest value of each score, shape (…, n).
        m_ub: the largest value of each score, same shape.
        k: the rank: 1 is the vector with the largest score.

    Returns:
        Lower and upper bounds, shape (…, d), taken over all vectors whose rank can be k.

    Example:
        >>> x = torch.tensor([[1.0], [2.0], [3.0]])
        >>> low, high = kth_best_bounds(x, x, torch.tensor([2.0, 0.0, 1.0]), torch.tensor([3.0, 1.5, 1.8]), 2)
        >>> low.tolist(), high.tolist()
        ([2.0], [3.0])
    """
    _check_box("kth_best_bounds", "x_lb", x_lb, "x_ub", x_ub)
    position("kth_best_bounds", x_lb, -1, "x_lb")
    _check_box("kth_best_bounds", "m_lb", m_lb, "m_ub", m_ub)
    _check_rank("kth_best_bounds", k, 1, m_lb.shape[-1])
    if x_lb.shape[:-1] != m_lb.shape:
        raise ValueError(
            f"kth_best_bounds: m_lb must have the shape of x_lb without its last dimension, "
            f"{tuple(x_lb.shape[:-1])}, got {tuple(m_lb.shape)}"
        )
    ranks = rank_bounds(m_lb, m_ub)
    can_be = ((ranks.rank_min <= k) & (ranks.rank_max >= k)).unsqueeze(-1)
    low = torch.where(can_be, x_lb, math.inf).amin(-2)
    return low, torch.where(can_be, x_ub, -math.inf).amax(-2)


def heaviside_bounds(low: Tensor, high: Tensor, temperature: float | None = None) -> Lines:
    r"""Linear bounds of a step h on [low, high]: the hard step h(x) = [x ≥ 0], or :math:`\sigma(x/\tau)`.

    Cost: elementwise.

    Args:
        low: the lower end of each interval.
        high: the upper end of each interval.
        temperature: τ > 0 of the smooth step, a number in the units of the interval; None for the hard step.

    Returns:
        :class:`Lines` with finite slopes and offsets. For intervals that are infinite, or so short that a
        slope would overflow, the slopes are 0 and the bounds are constants.

    Example:
        >>> lines = heaviside_bounds(torch.tensor([-2.0]), torch.tensor([1.0]))
        >>> lines.upper_slope.item(), lines.lower_slope.item()
        (0.5, 1.0)
    """
    _check_box("heaviside_bounds", "low", low, "high", high)
    zero, one = torch.zeros_like(low), torch.ones_like(low)
    if temperature is not None:
        if isinstance(temperature, Tensor):
            raise TypeError("heaviside_bounds: temperature must be a number or None, got a tensor")
        check_temperature("heaviside_bounds", temperature)
        a, b = low / temperature, high / temperature
        at_low, at_high = torch.sigmoid(a), torch.sigmoid(b)
        # σ′ = σ(a) σ(−a) keeps its digits where 1 − σ(a) has none.
        least = torch.minimum(at_low * torch.sigmoid(-a), at_high * torch.sigmoid(-b))
        slope = _usable(least / temperature)
        by_low, by_high = (torch.where(slope > 0, slope * end, 0) for end in (low, high))
        return _padded(slope, at_low - by_low, slope, at_high - by_high)
    surely, never = low >= 0, high < 0
    fixed = surely | never
    upper = torch.where(fixed, zero, _usable(-1 / torch.where(fixed, -one, low)))
    lower = torch.where(fixed | (high == 0), zero, _usable(1 / torch.where(high > 0, high, one)))
    value = surely.to(low.dtype)
    return _padded(lower, torch.where(fixed, value, zero), upper, torch.where(fixed, value, one))


def delta_bounds(low: Tensor, high: Tensor) -> Lines:
    """Linear bounds of the indicator h(x) = [x = 0] on the integers in [low, high].

    Cost: elementwise.

    Args:
        low: the lower end of each interval.
        high: the upper end of each interval.

    Returns:
        :class:`Lines` with finite slopes and offsets.

    Example:
        >>> lines = delta_bounds(torch.tensor([-1.0]), torch.tensor([3.0]))
        >>> round(lines.upper_slope.item(), 3), lines.lower_slope.item()
        (-0.333, 0.0)
    """
    _check_box("delta_bounds", "low", low, "high", high)
    zero, one = torch.zeros_like(low), torch.ones_like(low)
    outside, exact = (low > 0) | (high < 0), (low == 0) & (high == 0)
    fixed = outside | exact
    by_high = low + high >= 0
    falling = -_usable(1 / torch.where(high > 0, high, one))
    slope = torch.where(by_high, falling, _usable(-1 / torch.where(low < 0, low, -one)))
    value = exact.to(low.dtype)
    return _padded(zero, value, torch.where(fixed, zero, slope), torch.where(fixed, value, one))


def _usable(slope: Tensor) -> Tensor:
    """The slope, or 0, which is sound wherever the slope itself is, if it has no digits or is infinite."""
    return torch.where((slope >= torch.finfo(slope.dtype).tiny) & (slope < math.inf), slope, 0)


def _padded(lower_slope: Tensor, lower_offset: Tensor, upper_slope: Tensor, upper_offset: Tensor) -> Lines:
    """Offsets moved outwards by 4 units in the last place of what was computed."""
    ulp = 4 * torch.finfo(lower_offset.dtype).eps
    return Lines(
        lower_slope,
        lower_offset - ulp * lower_offset.abs().clamp_min(1),
        upper_slope,
        upper_offset + ulp * upper_offset.abs().clamp_min(1),
    )


def _check_box(name: str, low_name: str, low: Tensor, high_name: str, high: Tensor) -> None:
    for argument, value in ((low_name, low), (high_name, high)):
        check_floating(name, argument, value)
    if low.shape != high.shape:
        raise ValueError(
            f"{name}: {low_name} and {high_name} must have the same shape, "
            f"got {tuple(low.shape)} and {tuple(high.shape)}"
        )
    wrong = ~(low <= high)
    if bool(wrong.any()):
        a, b = low[wrong][0].item(), high[wrong][0].item()
        raise ValueError(f"{name}: {low_name} must not exceed {high_name} (nor be NaN), got {a} and {b}")


def _check_rank(name: str, k: int, first: int, n: int) -> None:
    if not is_integer(k):
        raise TypeError(f"{name}: k must be an integer, got {k!r}")
    if not first <= k <= n:
        raise ValueError(f"{name}: k must satisfy {first} <= k <= n = {n}, got {k}")
