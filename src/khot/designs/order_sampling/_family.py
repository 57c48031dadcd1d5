r"""Order sampling: each unit gets a random key, and the k largest keys win.

The key is a score plus noise, so a draw is one top-k, for any n. But the inclusion probabilities are only
near the target π. The probability of a set is an integral over the threshold z: all keys of the set lie above
z, and the largest of the others is at z. The integrand is smooth and falls off exponentially on both sides,
so the trapezoidal rule converges geometrically.
"""

# Tensor.split has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from khot.designs.base import KHotDistribution
from khot.kernels.availability import is_plain
from khot.relaxations import hard_topk
from khot.relaxations._chunks import AT_ONCE, at_once, chunks
from khot.relaxations._recomputed import recomputed

__all__ = ["OrderSampling", "integral", "nodes_around"]

_DEPTH = 40.0  # e⁻⁴⁰ is beyond float64
_NODES_UNSEEN = 1024  # where values must not be looked at


class OrderSampling(KHotDistribution):
    """The base of designs whose inclusion probabilities only approximate ``probs``."""

    exact_inclusion: ClassVar[bool] = False

    @property
    def true_inclusion(self) -> Tensor:
        """The true P(xᵢ = 1), by quadrature; it is also the ``mean``. ``probs`` is the target."""
        return self.mean

    def _parameters_of_keys(self) -> Tensor:
        """What keys are made of, (…, n) in float64."""
        raise NotImplementedError

    def _keys(self, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        """Random keys for rows of these parameters."""
        raise NotImplementedError

    def _draw_k_hot(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        parameters = self._parameters_of_keys().detach().reshape(-1, self.n)
        if sample_shape.numel() * parameters.numel() <= AT_ONCE:
            rows = parameters.repeat(sample_shape.numel(), 1) if sample_shape else parameters
            x = hard_topk(self._keys(rows, generator), int(self.k))
            return x.view(self._extended_shape(sample_shape))
        row = torch.arange(len(parameters), device=parameters.device).repeat(sample_shape.numel())
        x = torch.empty((len(row), self.n), dtype=self._dtype, device=parameters.device)
        for part in chunks(len(row), self.n):
            x[part] = hard_topk(self._keys(parameters[row[part]], generator), int(self.k)).to(x.dtype)
        return x.view(self._extended_shape(sample_shape))

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        x = self._draw_k_hot(sample_shape, generator)
        return x.nonzero()[:, -1].view(*x.shape[:-1], int(self.k))

    def _no_closed_form(self) -> str:
        return "has no closed form for this design; estimate it from draws, or take ConditionalPoisson"


def nodes_around(
    log_density: Callable[[Tensor], Tensor], peak: Tensor, reach: float, finest: Tensor
) -> tuple[Tensor, Tensor]:
    """Nodes (…, N) of the trapezoidal rule and their distance (…, 1), over the range where a density matters.

    Args:
        log_density: from (…, 1) to (…, 1), rising before the peak and falling after it.
        peak: approximately where it is largest, (…, 1).
        reach: a distance from the peak at which it is below e⁻⁴⁰ of its largest value.
        finest: the largest distance between nodes that is accurate enough, (…, 1).
    """
    with torch.no_grad():
        lowest = log_density(peak) - _DEPTH
        ends: list[Tensor] = []
        for sign in (-1, 1):
            inside, outside = torch.zeros_like(peak), torch.full_like(peak, reach)
            for _ in range(16):
                middle = (inside + outside) / 2
                matters = log_density(peak + sign * middle) > lowest
                inside, outside = torch.where(matters, middle, inside), torch.where(matters, outside, middle)
            ends.append(peak + sign * outside)
        width = ends[1] - ends[0]
        seen = is_plain(width) and width.numel() > 0
        count = math.ceil(float((width / finest).max())) if seen else _NODES_UNSEEN
        steps = torch.arange(count + 1, dtype=peak.dtype, device=peak.device)
        return ends[0] + width * (steps / count), width / count


def integral(
    function: Callable[[Tensor], Tensor], nodes: Tensor, entries: int, *, transforms: bool = False
) -> Tensor:
    """The sum of ``function`` over chunks of the nodes, so that memory stays bounded.

    Args:
        function: from nodes (…, M) to the sum of the integrand over them, any shape.
        nodes: (…, N).
        entries: how many entries ``function`` keeps for each node.
        transforms: whether ``function`` takes derivatives with torch.func itself; then it cannot be
            recomputed in the backward pass.
    """
    parts = nodes.split(at_once(entries), dim=-1)
    if len(parts) == 1:
        return function(nodes)
    total = torch.zeros((), dtype=nodes.dtype, device=nodes.device)
    for part in parts:
        total = total + (function(part) if transforms else recomputed(function, part))
    return total
