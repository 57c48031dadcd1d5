"""Sequential pivotal sampling in random order: the same inclusion probabilities, less effect of the order."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs._arguments import normalised
from khot.designs._random_order import RandomOrder
from khot.designs.pivotal.sequential_pivotal import SequentialPivotal, draw_chain, pivotal_chain
from khot.designs.registry import register

__all__ = ["RandomPivotal"]


@register
class RandomPivotal(RandomOrder):
    r"""Sequential pivotal sampling after a random permutation, a fresh one for each draw.

    .. math:: P(x_i = 1) = \pi_i \text{ exactly}

    The entropy is close to the maximum. Log-probability, entropy and joint inclusion are sums over n! orders
    and are not available; for a given order they are those of ``SequentialPivotal(k, probs[..., order])``. R:
    ``UPrandompivotal``. Cost of a draw: O(n) and a shuffle.

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = RandomPivotal(2, probs=torch.tensor([0.9, 0.1, 0.6, 0.4]))
        >>> x = design.sample((1000,), generator=torch.Generator().manual_seed(0))
        >>> x.sum(-1).unique(), (x.mean(0) - design.mean).abs().max() < 0.05
        (tensor([2.]), tensor(True))

    Reference: Deville & Tillé (1998).
    """

    ordered = SequentialPivotal

    def _draw_in_order(self, rows: Tensor, order: Tensor, generator: torch.Generator | None) -> Tensor:
        chain = pivotal_chain(normalised(rows, self.k).gather(-1, order), int(self.k))
        u = torch.rand(rows.shape, dtype=torch.float64, device=rows.device, generator=generator)
        return torch.zeros_like(rows).scatter_(-1, order, draw_chain(chain, u).to(rows.dtype))
