r"""Sequential pivotal sampling: a unit is carried along the list and duels with each next unit in turn.

This is a pivotal tree that leans completely to one side, so the closed forms of `_duels.py` hold along a
chain. With the cumulative sum :math:`C_i = f_i + \rho_i`, floor and fraction, :math:`f_i + z_i` of the first
i units are drawn, :math:`z_i \in \{0, 1\}`. From i down to i − 1, with :math:`a = \rho_{i-1}` and :math:`b =
\pi_i`:

    a + b < 1:  z = 0 → 0;   z = 1 → 1 with probability a/(a + b), else 0 and unit i is drawn
    a + b ≥ 1:  z = 1 → 1;   z = 0 → 1 with probability (1 − b)/(2 − a − b), else 0 and unit i is drawn

Each step keeps z or sets it to a constant, so a whole chain is one running maximum: the index of the last
step that set it. With t the probability that z is kept,

.. math:: \operatorname{Cov}(x_i, x_j) = -(1 - t_i) \prod_{i < l < j} t_l \cdot
    \begin{cases} ab & a + b < 1 \\ (1 - a)(1 - b) & a + b \ge 1 \end{cases}

for i < j, with a and b of unit j. References: Deville & Tillé (1998); Chauvet (2012) for the moments.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.designs.base import KHotDistribution
from khot.designs.registry import register
from khot.relaxations._chunks import at_once
from khot.relaxations._special import xlogy

__all__ = ["PivotalChain", "SequentialPivotal", "draw_chain", "pivotal_chain"]


class PivotalChain(NamedTuple):
    """The steps of a chain over units, all of shape (…, n).

    ``floor`` and ``rho`` belong to the sum up to the unit, ``before`` is ρ of the sum before it, ``each`` its
    own probability (0 if it is ``certain``: certain units take no part in the sums), ``over`` whether the
    floor rises at it, and ``left`` the probability that the carried unit wins.
    """

    floor: Tensor
    rho: Tensor
    before: Tensor
    each: Tensor
    certain: Tensor
    over: Tensor
    left: Tensor


@register
class SequentialPivotal(KHotDistribution):
    r"""Pivotal sampling in the order of the units, with everything in closed form.

    .. math:: \Big| \sum_{j \le i} x_j - \sum_{j \le i} \pi_j \Big| < 1 \quad \text{for every } i

    so the draw is spread evenly along the list, as in systematic sampling, but with more possible sets and
    covariances that are never positive. R: ``UPpivotal``. Cost of a draw: O(n), one scan.

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = SequentialPivotal(2, probs=torch.tensor([0.5, 0.5, 0.5, 0.5]))
        >>> design.joint_inclusion[0]
        tensor([0.5000, 0.0000, 0.2500, 0.2500])
        >>> design.log_prob(torch.tensor([1.0, 0.0, 0.0, 1.0])).exp()
        tensor(0.2500)

    Reference: Deville & Tillé (1998), Unequal Probability Sampling Without Replacement Through a Splitting
    Method.
    """

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        chain, k = pivotal_chain(self._inclusion.detach(), int(self.k)), int(self.k)
        batch = self.batch_shape
        drawn: list[Tensor] = []
        left = sample_shape.numel()
        while left:  # in parts, so that there are not too many uniform variables at a time
            part = min(left, at_once(self.n * batch.numel()))
            u = torch.rand(
                (part, *batch, self.n), dtype=torch.float64, device=chain.rho.device, generator=generator
            )
            drawn.append(draw_chain(chain, u).nonzero()[:, -1].view(part, *batch, k))
            left -= part
        indices = torch.cat(drawn) if drawn else torch.empty(0, dtype=torch.long, device=chain.rho.device)
        return indices.view(*sample_shape, *batch, k)

    def _log_prob(self, x: Tensor) -> Tensor:
        """The sum over units of the logarithms of what happened at their turn."""
        chain, k = pivotal_chain(self._inclusion, int(self.k)), int(self.k)
        allowed = torch.where(x, self._inclusion > 0, ~chain.certain)
        z = (x & ~chain.certain).cumsum(-1) - chain.floor
        z_before = _shifted(z)
        allowed = allowed & ((z == 0) | ((z == 1) & (chain.rho > 0)))
        possible = (x.sum(-1) == k) & allowed.all(-1)
        duel = (z == 1) ^ chain.over
        chance = torch.where(z_before == 1, chain.left, 1 - chain.left)
        possible = possible & ~(duel & (chance <= 0)).any(-1)
        counts = duel & (chance > 0)
        total = torch.where(counts, torch.where(counts, chance, 1.0).log(), 0.0).sum(-1)
        return torch.where(possible, total, -math.inf)

    def _entropy(self) -> Tensor:
        """The sum over units of P(there is a duel) times the entropy of its outcome."""
        chain = pivotal_chain(self._inclusion, int(self.k))
        duel = torch.where(chain.over, 1 - chain.rho, chain.rho)
        open_ = (chain.left > 0) & (chain.left < 1)
        left = torch.where(open_, chain.left, 0.5)
        each = -xlogy(left, left) - xlogy(1 - left, 1 - left)
        return torch.where(open_, duel * each, 0.0).sum(-1)

    def _joint_inclusion(self) -> Tensor:
        """From the covariances, products along the chain."""
        chain = pivotal_chain(self._inclusion, int(self.k))
        kept = torch.where(chain.over, 1 - chain.left, chain.left)
        pi = self._inclusion
        between = torch.where(_after(self.n, 1, pi.device), _shifted(kept).unsqueeze(-2), 1.0).cumprod(-1)
        meets = torch.where(chain.over, (1 - chain.before) * (1 - chain.each), chain.before * chain.each)
        covariance = (1 - kept).unsqueeze(-1) * between * meets.unsqueeze(-2)
        covariance = torch.where(_after(self.n, 0, pi.device), covariance, 0.0)
        return pi.unsqueeze(-1) * pi.unsqueeze(-2) - covariance - covariance.mT

    def _mode(self) -> Tensor:
        """A most likely draw, by max-product along the chain."""
        chain = pivotal_chain(self._inclusion.detach(), int(self.k))
        keeps, loses = chain.left.log(), (1 - chain.left).log()
        best = torch.stack(
            [torch.zeros_like(chain.rho[..., 0]), torch.full_like(chain.rho[..., 0], -math.inf)], -1
        )
        carried: list[Tensor] = []
        for i in range(self.n):
            nothing, one = best[..., 0], best[..., 1]
            if_left, if_right = keeps[..., i] + one, loses[..., i] + nothing
            duel, over = torch.maximum(if_left, if_right), chain.over[..., i]
            best = torch.stack([torch.where(over, duel, nothing), torch.where(over, one, duel)], -1)
            carried.append(if_left >= if_right)
        return _follow(chain, torch.stack(carried, -1))


def pivotal_chain(inclusion: Tensor, k: int) -> PivotalChain:
    """Build the chain over float64 probabilities (…, n) with sum k."""
    certain = inclusion >= 1
    each = torch.where(certain, 0.0, inclusion)
    sums = each.cumsum(-1)
    size = k - certain.sum(-1, keepdim=True)
    total = sums[..., -1:]
    # The last sum, and all that equal it, become exactly the size: rounding must not leave half a unit.
    sums = sums / torch.where(total > 0, total, 1.0) * size
    floor = sums.detach().floor()
    rho = sums - floor
    before = torch.nn.functional.pad(rho[..., :-1], (1, 0))
    over = floor > _shifted(floor)
    carried, new = torch.where(over, 1 - each, before), torch.where(over, 1 - before, each)
    both = carried + new
    # Where there is nothing to share, or the new unit has nothing, the carried one stays.
    left = torch.where(both > 0, carried / torch.where(both > 0, both, 1.0), 1.0)
    return PivotalChain(floor.long(), rho, before, each, certain, over, left)


def draw_chain(chain: PivotalChain, u: Tensor) -> Tensor:
    """Booleans of the shape of ``u``: one draw for each row of uniform variables (*sample, …, n)."""
    return _follow(chain, u < chain.left)


def _follow(chain: PivotalChain, left: Tensor) -> Tensor:
    """Which units are drawn if the carried unit wins where ``left`` says so."""
    n = left.shape[-1]
    # z is set to 1 where the floor rises and the carried unit wins, to 0 where it does not and the new one
    # wins.
    sets = left == chain.over
    place = torch.where(sets, torch.arange(n, 0, -1, device=left.device), 0)
    last = place.flip(-1)
    last = n - last.cummax(-1).values.flip(-1)  # n if z was never set: it starts as 0
    over = torch.nn.functional.pad(chain.over, (0, 1)).expand(*left.shape[:-1], n + 1)
    z_before = over.gather(-1, last).long()
    z = torch.nn.functional.pad(z_before[..., 1:], (0, 1))
    return chain.certain | (z - z_before + chain.floor - _shifted(chain.floor) > 0)


def _shifted(values: Tensor) -> Tensor:
    """The value before each, 0 before the first."""
    return torch.nn.functional.pad(values[..., :-1], (1, 0))


def _after(n: int, by: int, device: torch.device) -> Tensor:
    """Whether column j is more than ``by`` after row i."""
    place = torch.arange(n, device=device)
    return place > place.unsqueeze(-1) + by
