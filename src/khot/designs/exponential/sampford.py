"""Sampford sampling: exact inclusion probabilities and a closed-form log-probability, with nothing to solve.

The classical algorithm draws k units with replacement until all differ, which practically never happens for
large k. Here a set is drawn from the last unit to the first with tables of sums over all sets. If these would
overflow, one unit is drawn first and then a conditional Poisson sample around it. Neither rejects draws.
"""

# Tensor.split has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from khot.designs.base import KHotDistribution
from khot.designs.exponential import _symmetric_scan
from khot.designs.exponential._natural_parameters import (
    SCAN,
    clamped,
    draw,
    inclusion,
    log_partition,
    log_weight,
    tilt,
)
from khot.designs.exponential._weighted_poisson import weighted_joint_inclusion
from khot.designs.registry import register
from khot.kernels.availability import is_plain
from khot.relaxations import hard_topk
from khot.relaxations._chunks import at_once

__all__ = ["Sampford", "log_odds"]

# Entries of tables that are in memory at a time: each draw has its own.
_AT_ONCE = 1 << 24
_SETTLED = 1e-8  # 1 − π has no digits beyond 1e-16: relative to less than this too few are left


@register
class Sampford(KHotDistribution):
    r"""Sampford sampling: exactly π, near maximum entropy, and no weights to solve for.

    .. math:: p(s) \propto \prod_{i \in s} w_i \sum_{i \in s} (1 - \pi_i), \qquad
        w_i = \frac{\pi_i}{1 - \pi_i}

    The normaliser is :math:`e_k(w) \sum_i (1 - \pi_i) m_i` with m the inclusion probabilities of conditional
    Poisson sampling with weights w. The entropy has no closed form: estimate it by the mean of
    ``-design.log_prob(design.sample((1000,)))``. Cost: O(nk) for small k, O(n log² k) otherwise.

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = Sampford(2, probs=torch.tensor([0.9, 0.5, 0.6]))
        >>> design.log_prob(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])).exp()
        tensor([0.5000, 0.1000])
        >>> design.joint_inclusion[0]
        tensor([0.9000, 0.4000, 0.5000])

    Reference: Sampford (1967), On Sampling Without Replacement with Unequal Probabilities of Selection.
    """

    @functools.cached_property
    def _tilted(self) -> Tensor:
        with torch.enable_grad():
            return tilt(log_odds(self._inclusion), int(self.k))

    @functools.cached_property
    def _first(self) -> tuple[Tensor, Tensor]:
        """1 − π, and how likely each unit is the one that is drawn before the others, up to a factor.

        Where all units are certain or impossible, all of the former are 0; then equal weights do as well. So
        they do where the former are lost in rounding.
        """
        with torch.enable_grad():
            m = inclusion(clamped(self._tilted), int(self.k))
            spare = torch.where(self._tilted.isinf(), 0.0, 1 - self._inclusion)
            open_ = (spare * m).sum(-1, keepdim=True) > _SETTLED
            spare = torch.where(open_, spare, 1.0)
            return spare, spare * m

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        n, k = self.n, int(self.k)
        shape = (*sample_shape, *self.batch_shape, k)
        pi = self._inclusion.detach()
        if 0 in shape or k == n:
            return torch.arange(k, device=pi.device).expand(shape)
        if k <= SCAN and is_plain(pi) and bool((pi < 1).all()):
            spare = 1 - pi
            w = pi / spare
            if _symmetric_scan.in_range(w, k):
                return _symmetric_scan.sample(w, k, sample_shape, generator, spare)
        return self._draw_around(sample_shape, generator).view(shape)

    def _draw_around(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Where the tables of all sets would overflow: one unit, then the others around it."""
        n, k = self.n, int(self.k)
        t = self._tilted.detach().reshape(-1, n)
        draws = sample_shape.numel()
        weights = self._first[1].detach().reshape(-1, n)
        first = torch.multinomial(weights, draws, replacement=True, generator=generator).T.reshape(-1, 1)
        row = torch.arange(len(t), device=t.device).repeat(draws)
        drawn = torch.empty((len(first), k), dtype=torch.long, device=t.device)
        places = torch.arange(n - 1, device=t.device)
        rows_at_once = at_once(n * k, _AT_ONCE)
        for start in range(0, len(first), rows_at_once):
            part = slice(start, start + rows_at_once)
            one = first[part]
            others = t[row[part]].gather(-1, places + (places >= one))
            rest = draw(others, k - 1, torch.Size(), generator)
            drawn[part] = torch.cat([one, rest + (rest >= one)], -1).sort(-1).values
        return drawn

    def _log_prob(self, x: Tensor) -> Tensor:
        """Σ_s log w + log Σ_s (1 − π) − log[e_k(w) Σ(1 − π)m]."""
        t, k = self._tilted, int(self.k)
        spare, first = self._first
        total = log_weight(t, x) - log_partition(clamped(t), k)
        if k == 0:
            return torch.where(x.any(-1), -math.inf, total)
        inside = torch.where(x, spare, 0.0).sum(-1)
        possible = (total > -math.inf) & (x.sum(-1) == k) & (inside > 0)
        ratio = torch.where(possible, inside, 1.0).log() - first.sum(-1).log()
        return torch.where(possible, (total + ratio).clamp_max(0), -math.inf)

    def _joint_inclusion(self) -> Tensor:
        """From second derivatives of the logarithm of the normaliser; ties are no special case."""
        if self.k == 0:
            return torch.diag_embed(self._inclusion)
        return weighted_joint_inclusion(clamped(self._tilted), self._first[0], int(self.k))

    def _mode(self) -> Tensor:
        """The k largest π: to exchange a unit for one with a larger π makes a set more likely."""
        return hard_topk(self._inclusion.detach(), int(self.k))

    def _no_closed_form(self) -> str:
        return "has no closed form; take the mean of -log_prob(x) over draws x, or ConditionalPoisson"


def log_odds(inclusion: Tensor) -> Tensor:
    """log π/(1 − π); ±inf at 1 and 0, without a gradient there."""
    inside = (inclusion > 0) & (inclusion < 1)
    safe = torch.where(inside, inclusion, 0.5)
    settled = torch.where(inclusion > 0.5, math.inf, -math.inf)
    return torch.where(inside, safe.log() - torch.log1p(-safe), settled)
