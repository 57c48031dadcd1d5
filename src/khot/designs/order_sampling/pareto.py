r"""Pareto order sampling: one key for each unit, and the k smallest are drawn; π is met approximately.

With t = log π/(1 − π) and keys t + logistic noise, F_i(z) = σ(z − t_i) is the probability that a key is below
z, and

.. math:: p(s) = \prod_{i \in s} w_i \sum_{i \in s} c_i, \qquad
    c_i = \int e^{-kz} \prod_l F_l(z)\, F_i(z)\, dz,

which has Sampford's form with other summands: only the c are integrals, the same for all sets. Reference:
Bondesson, Traat & Lundqvist (2006).
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from khot.designs.exponential._natural_parameters import FAR, clamped, log_weight, tilt
from khot.designs.exponential._weighted_poisson import weighted_inclusion, weighted_joint_inclusion
from khot.designs.exponential.sampford import log_odds
from khot.designs.order_sampling._family import OrderSampling, integral, nodes_around
from khot.designs.registry import register
from khot.relaxations import hard_topk
from khot.relaxations._special import softplus

__all__ = ["AdjustedPareto", "Pareto"]

_SMALL = 0.5  # Σπ(1 − π) below which the published correction goes too far
_NO_ROOM = 1e-200  # Σπ(1 − π) below which nothing is random


@register
class Pareto(OrderSampling):
    r"""Pareto sampling: inclusion probabilities approximately ``probs``, by one top-k for any n.

    .. math:: Q_i = \frac{U_i}{1 - U_i} \Big/ \frac{\pi_i}{1 - \pi_i}, \qquad
        s = \text{the } k \text{ smallest } Q_i

    with independent uniform U. ``exact_inclusion`` is False: ``probs`` is the target π, and ``mean`` (the
    same as ``true_inclusion``) is the true one. The error falls as d = Σπ(1 − π) grows. Log-probability and
    true inclusion are computed by quadrature, exact to rounding, and differentiable. Cost of a draw: O(n) and
    a top-k.

    Args:
        k: how many units are drawn.
        probs: wanted inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = Pareto(2, probs=torch.tensor([0.9, 0.5, 0.4, 0.2]))
        >>> design.true_inclusion
        tensor([0.9077, 0.5111, 0.3931, 0.1880])
        >>> design.sample((1000,)).sum(-1).unique()
        tensor([2.])

    Reference: Rosén (1997), On Sampling with Probability Proportional to Size; Saavedra (1995).
    """

    def _scores(self) -> Tensor:
        """The logarithm of the factors of 1/Q, from π."""
        return log_odds(self._inclusion)

    @functools.cached_property
    def _tilted(self) -> Tensor:
        with torch.enable_grad():
            return tilt(self._scores(), int(self.k))

    @functools.cached_property
    def _summands(self) -> Tensor:
        """c, with the product over F divided by its value at z = 0."""
        with torch.enable_grad():
            t, k = clamped(self._tilted), int(self.k)

            def exponent(z: Tensor) -> Tensor:
                at = t.unsqueeze(-1)
                return (softplus(at) - softplus(at - z.unsqueeze(-2))).sum(-2) - k * z

            def part(z: Tensor) -> Tensor:
                below = torch.sigmoid(z.unsqueeze(-2) - t.unsqueeze(-1))
                return (below @ exponent(z).exp().unsqueeze(-1)).squeeze(-1)

            # The keys have their threshold at 0, where the curvature of the exponent is −spread.
            spread = (torch.sigmoid(t) * torch.sigmoid(-t)).sum(-1, keepdim=True).detach()
            finest = (0.5 / spread.sqrt()).clamp_max(1 / 6)
            nodes, step = nodes_around(exponent, torch.zeros_like(spread), 2 * FAR + 50, finest)
            return integral(part, nodes, t.numel()) * step

    def _parameters_of_keys(self) -> Tensor:
        """The factors of 1/Q; +inf where π = 1."""
        pi = self._inclusion.detach()
        spare = 1 - pi
        return torch.div(pi, spare, out=spare)

    def _keys(self, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        """1/Q = π/(1 − π) (1/U − 1)."""
        u = torch.rand(rows.shape, dtype=rows.dtype, device=rows.device, generator=generator)
        return u.clamp_min_(2.0**-54).reciprocal_().sub_(1).mul_(rows)

    def _log_prob(self, x: Tensor) -> Tensor:
        """Σ_s log w + log Σ_s c."""
        t, k = self._tilted, int(self.k)
        total = log_weight(t, x) - softplus(clamped(t)).sum(-1)
        if k == 0:
            return torch.where(x.any(-1), -math.inf, total)
        possible = (total > -math.inf) & (x.sum(-1) == k)
        inside = torch.where(x, self._summands, 0.0).sum(-1)
        total = total + torch.where(possible, inside, 1.0).log()
        return torch.where(possible, total.clamp_max(0), -math.inf)

    @functools.cached_property
    def _true_inclusion(self) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.enable_grad():
            t, k = self._tilted, int(self.k)
            settled = (t > 0).double()
            if k in (0, self.n):
                return torch.where(t.isinf(), settled, t)  # all are, but the scores they are of have a graph
            return torch.where(t.isinf(), settled, weighted_inclusion(clamped(t), self._summands, k))

    def _joint_inclusion(self) -> Tensor:
        """True ones, from second derivatives of the logarithm of a normaliser."""
        if self.k == 0:
            return torch.diag_embed(self._true_inclusion)
        return weighted_joint_inclusion(clamped(self._tilted), self._summands, int(self.k))

    def _mode(self) -> Tensor:
        """The k units whose keys are smallest in the median."""
        return hard_topk(self._tilted.detach(), int(self.k))


@register
class AdjustedPareto(Pareto):
    r"""Pareto sampling with corrected keys: inclusion probabilities closer to ``probs``, still approximate.

    .. math:: Q_i \exp\Big(\frac{\pi_i(1 - \pi_i)(\pi_i - \frac12)}{d \max(d, \frac12)}\Big), \qquad
        d = \sum_i \pi_i(1 - \pi_i)

    The published correction has :math:`d^2` as its denominator. It is derived for large d and grows without
    bound for small ones, so below ½ the denominator is d/2 here: no exponent exceeds 1, and inclusion
    probabilities remain closer to ``probs`` than without it. Everything else, including the cost, is as in
    :class:`Pareto`.

    Args:
        k: how many units are drawn.
        probs: wanted inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> pi = torch.tensor([0.9, 0.8, 0.7, 0.5, 0.5, 0.3, 0.2, 0.1])
        >>> [(kind(4, probs=pi).mean - pi).abs().max() < 0.002 for kind in (Pareto, AdjustedPareto)]
        [tensor(False), tensor(True)]

    Reference: Rosén (2000), On Inclusion Probabilities for Order πps Sampling.
    """

    def _scores(self) -> Tensor:
        return log_odds(self._inclusion) - self._correction()

    def _parameters_of_keys(self) -> Tensor:
        return super()._parameters_of_keys().mul_(torch.exp(-self._correction().detach()))

    def _correction(self) -> Tensor:
        pi = self._inclusion
        room = pi * (1 - pi)
        d = room.sum(-1, keepdim=True)
        share = room / d.clamp_min(_NO_ROOM)  # at most 1
        return share * (pi - 0.5) / d.clamp_min(_SMALL)
