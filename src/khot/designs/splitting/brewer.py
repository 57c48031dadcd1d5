"""Brewer's method: units are drawn one after the other, with probabilities that keep π exact."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs.base import KHotDistribution
from khot.designs.registry import register
from khot.kernels import cpu
from khot.relaxations._chunks import chunks

__all__ = ["Brewer"]


@register
class Brewer(KHotDistribution):
    r"""Brewer sampling: k successive draws, with exactly the inclusion probabilities π.

    .. math:: P(\text{next is } i \mid S) \propto \pi_i\,
        \frac{D + m - \pi_i}{D + m(1 - \pi_i)}, \qquad D = \sum_{j \in S}(1 - \pi_j), \quad i \notin S

    with S the units drawn so far and m the number still to be drawn. The probability of a set is a sum over
    the k! orders in which it can be drawn, so ``log_prob``, ``entropy``, ``joint_inclusion`` and ``mode`` are
    not available. :class:`Sampford` and :class:`ConditionalPoisson` have the same π and closed forms, and
    their joint inclusion probabilities are close to those of this design. Cost of a draw: O(nk).

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = Brewer(2, probs=torch.tensor([0.9, 0.1, 0.6, 0.4]))
        >>> x = design.sample((1000,), generator=torch.Generator().manual_seed(0))
        >>> x.sum(-1).unique(), (x.mean(0) - design.mean).abs().max() < 0.05
        (tensor([2.]), tensor(True))

    Reference: Brewer (1975), A Simple Procedure for πpswor.
    """

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        n, k = self.n, int(self.k)
        shape = (*sample_shape, *self.batch_shape, k)
        inclusion = self._inclusion.detach().reshape(-1, n)
        rows = sample_shape.numel() * len(inclusion)
        if 0 in shape:
            return torch.empty(shape, dtype=torch.long, device=inclusion.device)
        u = torch.rand((rows, k), dtype=torch.float64, device=inclusion.device, generator=generator)
        if cpu.usable(inclusion):
            return cpu.brewer(inclusion, u.view(-1, len(inclusion), k)).view(shape)
        row = torch.arange(len(inclusion), device=inclusion.device).repeat(sample_shape.numel())
        drawn = torch.empty((rows, k), dtype=torch.long, device=inclusion.device)
        for part in chunks(rows, n):
            x = _draw_rows(inclusion[row[part]], u[part])
            drawn[part] = x.nonzero()[:, -1].view(len(x), k)
        return drawn.view(shape)

    def _no_closed_form(self) -> str:
        return "is a sum over all orders of drawing; take Sampford or ConditionalPoisson with the same probs"


def _draw_rows(inclusion: Tensor, u: Tensor) -> Tensor:
    """Booleans in the shape of float64 π (rows, n), from uniform variables (rows, k)."""
    x = inclusion >= 1
    spare = 1 - inclusion
    left = u.shape[-1] - x.sum(-1, keepdim=True)
    gone = torch.zeros_like(inclusion[:, :1])  # Σ(1 − π) over the units drawn
    for step in range(int(left.max())):
        m = left.clamp_min(1)  # a row that is full goes along idly
        weights = torch.where(x, 0.0, inclusion * (gone + m - inclusion) / (gone + m * spare))
        sums = weights.cumsum(-1)
        total = sums[:, -1:]
        level = torch.minimum(total * u[:, step : step + 1], torch.nextafter(total, torch.zeros_like(total)))
        drawn = torch.searchsorted(sums, level, right=True)
        # Where rounding left fewer than k units with π > 0.
        drawn = torch.where(total > 0, drawn, torch.where(x, -1.0, inclusion).argmax(-1, keepdim=True))
        active = left > 0
        gone = gone + torch.where(active, spare.gather(-1, drawn), 0.0)
        x = x.scatter(-1, drawn, x.gather(-1, drawn) | active)
        left = left - active.long()
    return x
