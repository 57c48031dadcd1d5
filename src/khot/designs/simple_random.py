"""Simple random sampling without replacement: all sets of k units are equally likely.

For small k, indices are drawn one by one in O(k) memory (Floyd's algorithm); for larger k, they come from a
random order of the units.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.designs._arguments import check_size, validates
from khot.designs._random_order import random_order
from khot.designs.base import KHotDistribution
from khot.relaxations._chunks import at_once
from khot.relaxations._plain_arguments import check_integer, check_sample_shape

__all__ = ["SimpleRandom"]


class SimpleRandom(KHotDistribution):
    r"""Simple random sampling of k of n units without replacement.

    .. math:: p(x) = \binom{n}{k}^{-1}, \qquad \pi_i = \frac{k}{n}, \qquad
        \pi_{ij} = \frac{k (k - 1)}{n (n - 1)}

    The reference design of survey sampling: see :func:`khot.designs.survey.design_effect`. R: ``srswor``.
    Cost of a draw: O(k) for small k, otherwise a shuffle.

    Args:
        k: how many units are drawn.
        n: the number of units.
        batch_shape: the shape of a batch of independent draws.
        dtype: the dtype of samples and probabilities; by default torch's default.
        device: the device of samples and probabilities.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = SimpleRandom(2, 4)
        >>> design.mean, design.entropy().exp()
        (tensor([0.5000, 0.5000, 0.5000, 0.5000]), tensor(6.))
        >>> SimpleRandom(3, 10**12).sample_indices((5,)).shape
        torch.Size([5, 3])

    Reference: Bentley & Floyd (1987), A Sample of Brilliance.
    """

    def __init__(
        self,
        k: int,
        n: int,
        batch_shape: tuple[int, ...] = (),
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = "SimpleRandom"
        check_integer(name, "n", n)
        check_sample_shape(name, batch_shape, "batch_shape")
        validate = validates(name, validate_args)
        size = int(check_size(name, k, n, whole=True))
        # One number seen n times, and right by construction: it takes no memory and needs no check.
        probs = torch.full((), size / n, dtype=dtype, device=device).expand(*batch_shape, n)
        super().__init__(size, probs=probs, validate_args=False)
        self._validate_args = validate

    @property
    def _inclusion(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        shape = self.batch_shape + self.event_shape
        return torch.full((), int(self.k) / self.n, dtype=torch.float64, device=self.probs.device).expand(
            shape
        )

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        k, n, device = int(self.k), self.n, self.probs.device
        shape = sample_shape + self.batch_shape
        rows = shape.numel()
        if k * k <= 8 * n:
            chosen = torch.empty((rows, k), dtype=torch.long, device=device)
            for i, last in enumerate(range(n - k, n)):
                unit = torch.randint(0, last + 1, (rows, 1), device=device, generator=generator)
                taken = (chosen[:, :i] == unit).any(-1)
                chosen[:, i] = torch.where(taken, last, unit[:, 0])
        else:
            part = at_once(n)
            orders = [
                random_order((min(part, rows - first), n), device, generator)[:, :k].clone()
                for first in range(0, rows, part)
            ]
            chosen = torch.cat(orders) if orders else torch.empty((0, k), dtype=torch.long, device=device)
        return chosen.sort(-1).values.view(*shape, k)

    def _log_prob(self, x: Tensor) -> Tensor:
        """Minus the logarithm of the number of sets."""
        return torch.where(x.sum(-1) == self.k, -self._entropy(), -math.inf)

    def _entropy(self) -> Tensor:
        """The logarithm of the number of sets."""
        n, k = self.n, int(self.k)
        sets = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) if 0 < k < n else 0.0
        return torch.full(self.batch_shape, sets, dtype=torch.float64, device=self.probs.device)

    def _joint_inclusion(self) -> Tensor:
        """k(k − 1)/(n(n − 1)), with π on the diagonal."""
        n, k = self.n, int(self.k)
        joint = torch.full((), k * (k - 1) / (n * max(1, n - 1)), dtype=torch.float64)
        return joint.to(self.probs.device).expand(*self.batch_shape, n, n)

    def _mode(self) -> Tensor:
        """The first k units: all sets are equally likely."""
        x = torch.arange(self.n, device=self.probs.device) < self.k
        return x.expand(self.batch_shape + self.event_shape)

    def __repr__(self) -> str:
        """Show k, n and the batch."""
        return f"SimpleRandom(k: {self.k}, n: {self.n}, batch_shape: {tuple(self.batch_shape)})"
