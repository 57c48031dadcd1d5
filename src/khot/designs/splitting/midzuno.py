"""Midzuno's method, generalised to any inclusion probabilities: the units that Tillé's method eliminates.

Cost of a draw: a sort and k steps of O(1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs.base import KHotDistribution
from khot.designs.registry import register
from khot.designs.splitting._elimination import elimination, joint_of_kept, log_prob_of_kept, strike_off

__all__ = ["Midzuno"]


@register
class Midzuno(KHotDistribution):
    r"""Midzuno sampling: the k units that :class:`Tille` with probabilities 1 − π would eliminate.

    .. math:: x = 1 - \text{Tillé}(n - k,\ 1 - \pi), \qquad
        \pi_{ij} = \pi_i + \pi_j - 1 + \pi_{ij}^{\text{Tillé}}(1 - \pi)

    Midzuno's original method draws one unit with unequal probabilities and the rest by simple random
    sampling, so all its inclusion probabilities are at least (k − 1)/(n − 1). For such π this design is the
    same distribution; for other π it still has exactly π. R: ``UPmidzuno``, ``UPmidzunopi2``. Cost of a draw:
    a sort and k steps.

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = Midzuno(2, probs=torch.tensor([0.7, 0.5, 0.4, 0.4]))
        >>> first = torch.tensor([0.55, 0.25, 0.10, 0.10])  # (π − 1/3)·3/2: one unit by these, one at random
        >>> design.joint_inclusion[0, 1:], (first[0] + first[1:]) / 3
        (tensor([0.2667, 0.2167, 0.2167]), tensor([0.2667, 0.2167, 0.2167]))

    Reference: Midzuno (1952), On the Sampling System with Probability Proportionate to Sum of Size; Deville &
    Tillé (1998).
    """

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        out = 1 - self._inclusion.detach()
        indices = strike_off(out, self.n - int(self.k), sample_shape.numel(), generator, kept=False)
        return indices.view(*sample_shape, *self.batch_shape, int(self.k))

    def _log_prob(self, x: Tensor) -> Tensor:
        """That of the complement under elimination."""
        total = log_prob_of_kept(elimination(1 - self._inclusion, self.n - int(self.k)), ~x)
        return torch.where(x.sum(-1) == self.k, total, -torch.inf)

    def _joint_inclusion(self) -> Tensor:
        """From that of the complement."""
        out = 1 - self._inclusion
        joint = joint_of_kept(elimination(out, self.n - int(self.k)))
        return 1 - out.unsqueeze(-1) - out.unsqueeze(-2) + joint

    def _no_closed_form(self) -> str:
        return "has no closed form for this design; use log_prob over enumerate_support, or over samples"
