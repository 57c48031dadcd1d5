"""Tillé's elimination procedure: start with all units and eliminate one at a time until k are left.

Cost of a draw: a sort and n − k steps of O(1). See `_elimination.py` for the algorithm.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs.base import KHotDistribution
from khot.designs.registry import register
from khot.designs.splitting._elimination import elimination, joint_of_kept, log_prob_of_kept, strike_off

__all__ = ["Tille"]


@register
class Tille(KHotDistribution):
    r"""Tillé sampling: eliminate one unit at a time, keeping inclusion probabilities proportional to π.

    .. math:: P(i \text{ goes} \mid m + 1 \to m) = 1 - \frac{a_m(i)}{a_{m+1}(i)}, \qquad
        \pi_{ij} = \prod_m \big(1 - v_m(i) - v_m(j)\big)

    with :math:`a_m = \min(1, c_m \pi)` of sum m. Inclusion probabilities are exact, log-probabilities and
    joint inclusion are products over steps, and covariances are never positive. Cost of a draw: a sort and
    n − k steps; if k is much smaller than n, use :class:`Midzuno`. R: ``UPtille``, ``UPtillepi2``.

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = Tille(2, probs=torch.tensor([0.8, 0.6, 0.4, 0.2]))
        >>> design.joint_inclusion[0]
        tensor([0.8000, 0.4000, 0.2667, 0.1333])
        >>> design.log_prob(torch.tensor([1.0, 1.0, 0.0, 0.0])).exp()
        tensor(0.4000)

    Reference: Tillé (1996), An Elimination Procedure for Unequal Probability Sampling Without Replacement.
    """

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        indices = strike_off(
            self._inclusion.detach(), int(self.k), sample_shape.numel(), generator, kept=True
        )
        return indices.view(*sample_shape, *self.batch_shape, int(self.k))

    def _log_prob(self, x: Tensor) -> Tensor:
        """The sum over steps of the logarithm of P(one of those that must go, goes)."""
        total = log_prob_of_kept(elimination(self._inclusion, int(self.k)), x)
        return torch.where(x.sum(-1) == self.k, total, -torch.inf)

    def _joint_inclusion(self) -> Tensor:
        """Products over steps."""
        return joint_of_kept(elimination(self._inclusion, int(self.k)))

    def _no_closed_form(self) -> str:
        return "has no closed form for this design; use log_prob over enumerate_support, or over samples"
