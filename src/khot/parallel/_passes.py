r"""Passes over this process's shard once the threshold is known: weights and Jacobian products.

With w = F′(a), 0 where no score moves the weight, and g the incoming gradient,

    weights     y = F(a)
    sums        Σw, Σwg, Σzw, Σzwg
    product     w (g − m)/τ

Each pass is a kernel if there is one. Otherwise it goes through blocks that fit the cache, without temporary
memory for a whole row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.parallel._solver import Threshold
from khot.parallel._sums import blocks, difference, has_kernel
from khot.relaxations.threshold._gates import Gate

__all__ = ["KnownRows"]


class KnownRows(NamedTuple):
    """Scores (rows, here) in float32 or float64, and their threshold."""

    gate: Gate
    x: Tensor
    temperature: Tensor
    at: Threshold

    def weights(self) -> Tensor:
        """The weights of this shard; `Threshold` says what they are in a row that is not open."""
        gate, x, temperature, at = self
        all_open = bool(at.is_open.all())
        if all_open and (shard := self._for_kernel()) is not None:
            return cpu.gate_weights(shard)
        y = torch.empty_like(x)
        for rows, parts in blocks(*x.shape):
            here, half = _of_rows(at, rows), temperature[rows] * 0.5
            for columns in parts:
                mine = x[rows, columns]
                # In an open row an infinite score is as far as any can be: its weight is 0 or 1.
                a = (mine * 0.5).sub_(here.anchor * 0.5).div_(half).clamp_(-gate.far, gate.far)
                found = gate.weights(a.add_(here.offset).sub_(here.fine))
                if not all_open:
                    finite = torch.where(here.is_open, found, here.rest)
                    found = torch.where(
                        mine == math.inf, here.sure, torch.where(mine == -math.inf, 0, finite)
                    )
                    found = torch.where(here.invalid, math.nan, found)
                y[rows, columns] = found
        return y

    def sums(self, grad: Tensor) -> Tensor:
        """Σw, Σwg, Σzw and Σzwg over this shard, float64 (rows, 4)."""
        if bool(self.at.is_open.all()) and (shard := self._for_kernel()) is not None:
            return cpu.slope_sums(shard, grad)
        x = self.x
        sums = torch.zeros(x.shape[0], 4, dtype=torch.float64, device=x.device)
        for rows, parts in blocks(*x.shape):
            for columns in parts:
                z, w = self._slopes(rows, columns)
                wg = w * torch.where(w > 0, grad[rows, columns], 0)
                terms = [w, wg, z * w, z * wg]
                sums[rows] += torch.stack([term.sum(-1, dtype=torch.float64) for term in terms], -1)
        return sums

    def product(self, grad: Tensor, mean: Tensor) -> Tensor:
        """w (g − m)/τ, for the mean m (rows, 1) of all processes."""
        if bool(self.at.is_open.all()) and (shard := self._for_kernel()) is not None:
            return cpu.slope_product(shard, grad, mean)
        out, mean = torch.empty_like(self.x), mean.to(self.x.dtype)
        for rows, parts in blocks(*self.x.shape):
            for columns in parts:
                w = self._slopes(rows, columns)[1]
                moved = torch.where(w > 0, grad[rows, columns], 0) - mean[rows]
                out[rows, columns] = w * moved / self.temperature[rows]
        return out

    def limits(self, grad: Tensor) -> Tensor:
        """The sums for ∂L/∂k in rows whose slopes vanish, float64 (rows, 5).

        These are the shares above the gap, without g and with it; the same below it; and g at +inf.
        """
        x, at, terms = self.x, self.at, list[Tensor]()
        finite = x.isfinite()
        above, below = finite & (x >= at.anchor), finite & (x <= at.next_best)
        for side, distance in (
            (above, difference(x, at.anchor, self.temperature)),
            (below, difference(at.next_best, x, self.temperature)),
        ):
            share = torch.where(side, torch.exp(-distance), 0)
            terms += [share, torch.where(share > 0, share * grad, 0)]
        terms.append(torch.where(x == math.inf, grad, 0))
        return torch.stack([term.sum(-1, dtype=torch.float64) for term in terms], -1)

    def _slopes(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """z and w; z is finite also where it does not count."""
        gate, at, x = self.gate, _of_rows(self.at, rows), self.x[rows, columns]
        finite = x.isfinite()
        z = torch.where(finite, difference(x, at.anchor, self.temperature[rows]), 0)
        z = z.clamp(-gate.far, gate.far)
        return z, torch.where(at.is_open & finite, gate.slope(gate.state(z + at.offset - at.fine)), 0)

    def _for_kernel(self) -> cpu.GateShard | None:
        gate, x, temperature, at = self
        if not has_kernel(gate, x) or gate.kernel is None:
            return None
        return cpu.GateShard(gate.kernel, x, at.anchor, temperature, at.offset, at.fine)


def _of_rows(at: Threshold, rows: slice) -> Threshold:
    return Threshold(*(each[rows] for each in at))
