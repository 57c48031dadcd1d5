r"""Systematic sampling: k points one unit apart, laid over the cumulative sums of π.

With :math:`C_i = \pi_1 + … + \pi_i` and one uniform u, unit i is drawn when one of u, u + 1, … lies in
:math:`[C_{i-1}, C_i)`. On a circle of length 1 each unit is an arc, and the draw is the set of arcs over u.

Cost: one scan. Units with π = 1 are set aside before it, and units with π = 0 have empty arcs, so rounding
cannot lose the former or draw the latter. Sums are computed in float64. Reference: Madow (1949).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.designs._with_phantom import phantom_indicator, phantom_probability
from khot.designs.base import KHotDistribution
from khot.designs.registry import register
from khot.kernels import cpu, operations
from khot.kernels.availability import is_plain
from khot.relaxations._cumulative import cumulative
from khot.relaxations._special import xlogy

__all__ = ["Systematic", "systematic_indices"]


@register
class Systematic(KHotDistribution):
    r"""Systematic sampling in the order of the units: one uniform variable decides everything.

    .. math:: x_i = \lfloor C_i - u \rfloor - \lfloor C_{i-1} - u \rfloor, \qquad C_i = \sum_{j \le i} \pi_j

    At most n different sets can be drawn, so the entropy is low: neighbours exclude each other, and units one
    apart in C tend to be drawn together. These positive covariances harm straight-through gradients; prefer
    :class:`RandomSystematic` there. Cost of a draw: O(n), one scan.

    Args:
        k: Σπ; if it is not an integer, ⌊k⌋ or ⌈k⌉ units are drawn.
        probs: inclusion probabilities, shape (…, n).
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = Systematic(2, probs=torch.tensor([0.5, 0.5, 0.5, 0.5]))
        >>> design.log_prob(torch.tensor([[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]])).exp()
        tensor([0.5000, 0.0000])
        >>> design.joint_inclusion[0]
        tensor([0.5000, 0.0000, 0.5000, 0.0000])

    Reference: Madow (1949), On the Theory of Systematic Sampling, II.
    """

    takes_fractions = True

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        inclusion = phantom_probability(self._inclusion.detach(), self.k)
        u = torch.rand(
            (*sample_shape, *self.batch_shape, 1),
            dtype=torch.float64,
            device=inclusion.device,
            generator=generator,
        )
        return systematic_indices(inclusion, math.ceil(self.k), u)

    def _draw_k_hot(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        rows = self._rows
        by_kernel = cpu.usable(rows) or operations.draws_taken(rows)
        if not isinstance(self.k, int) or not by_kernel:
            return super()._draw_k_hot(sample_shape, generator)
        shape = (sample_shape.numel(), *self.batch_shape)
        u = torch.rand(shape, dtype=torch.float64, device=rows.device, generator=generator)
        draw = cpu.systematic if cpu.usable(rows) else operations.systematic
        return draw(rows, self.k, u, None).view(self._extended_shape(sample_shape))

    def _log_prob(self, x: Tensor) -> Tensor:
        """The logarithm of the length of the interval of u that gives these units."""
        x = phantom_indicator(x, self.k)
        inclusion = phantom_probability(self._inclusion, self.k)
        certain = inclusion >= 1
        ends, size = _cumulative(inclusion, math.ceil(self.k))
        starts = _starts(ends)
        drawn = x & ~certain
        rank = drawn.cumsum(-1) - 1
        last = torch.where(drawn, ends - rank, 1.0).amin(-1)
        first = torch.where(drawn, starts - rank, 0.0).amax(-1)
        length = last.clamp_max(1) - first.clamp_min(0)
        possible = (
            (length > 0)
            & (drawn.sum(-1, keepdim=True) == size).squeeze(-1)
            & ~(certain & ~x).any(-1)
            & ~((inclusion <= 0) & x).any(-1)
        )
        return torch.where(possible, torch.where(possible, length, 1.0).log(), -math.inf)

    def _entropy(self) -> Tensor:
        """Of the lengths of the intervals between the ends of arcs."""
        lengths = self._breaks().diff(dim=-1)
        positive = lengths > 0
        return torch.where(positive, -xlogy(lengths, torch.where(positive, lengths, 1.0)), 0.0).sum(-1)

    def _joint_inclusion(self) -> Tensor:
        """How much of the circle two arcs share."""
        inclusion = self._inclusion
        ends, _ = _cumulative(phantom_probability(inclusion, self.k), math.ceil(self.k))
        starts = _starts(ends)[..., : self.n]
        distance = starts.unsqueeze(-2) - starts.unsqueeze(-1)
        distance = distance - distance.floor()  # from the start of i to that of j
        mine, other = inclusion.unsqueeze(-1), inclusion.unsqueeze(-2)
        ahead = torch.minimum(mine, distance + other) - distance
        around = torch.minimum(mine, distance + other - 1)
        return torch.minimum(ahead.clamp_min(0) + around.clamp_min(0), torch.minimum(mine, other))

    def _mode(self) -> Tensor:
        """The set of the longest interval."""
        breaks = self._breaks().detach()
        longest = breaks.diff(dim=-1).argmax(-1, keepdim=True)
        middle = (breaks.gather(-1, longest) + breaks.gather(-1, longest + 1)) / 2
        inclusion = phantom_probability(self._inclusion.detach(), self.k)
        return self._as_k_hot(systematic_indices(inclusion, math.ceil(self.k), middle))

    def _breaks(self) -> Tensor:
        """0, the ends of all arcs on the circle in order, 1."""
        ends, _ = _cumulative(phantom_probability(self._inclusion, self.k), math.ceil(self.k))
        inside = (ends - ends.floor()).sort(-1).values
        return torch.nn.functional.pad(torch.nn.functional.pad(inside, (1, 0)), (0, 1), value=1.0)


def systematic_indices(inclusion: Tensor, k: int, u: Tensor) -> Tensor:
    """The units hit by the points u, u + 1, …, and those with π = 1.

    Args:
        inclusion: float64 (…, n) with sum k.
        k: how many.
        u: in [0, 1), shape (*sample, …, 1).

    Returns:
        Increasing int64 indices (*sample, …, k).
    """
    n = inclusion.shape[-1]
    shape = u.shape[:-1]
    step = torch.arange(k, device=u.device)
    if k == 0:
        return step.expand(*shape, 0)
    ends, size = _cumulative(inclusion, k)
    # u + k − 1 may round up to k, where there is no unit.
    points = torch.minimum(u + step, torch.nextafter(size.double(), torch.zeros_like(size, dtype=u.dtype)))
    indices = _search(ends, points)
    certain = inclusion >= 1
    if not is_plain(certain) or bool(certain.any()):  # nobody waits for a GPU to say whether there are any
        first = torch.sort((~certain).to(torch.uint8), dim=-1, stable=True).indices[..., :k]
        order = (step - size).clamp_min(0).expand(first.shape)
        indices = torch.where(step < size, indices, first.gather(-1, order))
        indices = indices.sort(-1).values
    # An arc as long as 1 but for rounding could have two points over it.
    return ((indices - step).cummax(-1).values + step).minimum(n - k + step)


def _cumulative(inclusion: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Cumulative sums without the certain units, which end exactly at their number (…, 1), and that."""
    certain = inclusion >= 1
    size = k - certain.sum(-1, keepdim=True)
    sums = cumulative(torch.where(certain, 0.0, inclusion))
    total = sums[..., -1:]
    # All that equal the last become exactly the size, so that trailing units with π = 0 stay empty.
    return sums / torch.where(total > 0, total, 1.0) * size, size


def _starts(ends: Tensor) -> Tensor:
    return torch.nn.functional.pad(ends[..., :-1], (1, 0))


def _search(ends: Tensor, points: Tensor) -> Tensor:
    """For each point the first unit that ends beyond it; points (*sample, *batch, k), ends (*batch, n)."""
    batch = ends.shape[:-1]
    samples = points.dim() - ends.dim()
    flat = points.movedim(tuple(range(samples)), tuple(range(-1 - samples, -1))) if samples else points
    kept = flat.shape
    flat = flat.reshape(*batch, math.prod(kept[len(batch) :])).contiguous()
    found = torch.searchsorted(ends.contiguous(), flat, right=True).view(kept)
    return found.movedim(tuple(range(-1 - samples, -1)), tuple(range(samples))) if samples else found
