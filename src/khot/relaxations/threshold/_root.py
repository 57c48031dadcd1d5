"""The search for the offset e of a row; each step needs only sums over the row.

``_solver.py`` explains what is solved and why the equation is P = Q. This module takes the steps: Halley's
method on log P − log Q, or the gate's own step if its tails reach 0, inside a bracket that shrinks with every
step. A step that leaves the bracket becomes a bisection. ``khot.parallel`` takes the same steps with sums
over several processes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.relaxations.threshold._gates import Gate

__all__ = ["RowSums", "Search", "advanced", "bracket", "started", "tie_share"]


class RowSums(NamedTuple):
    """Sums over each row at an offset, all (…, 1).

    ``p`` and ``q`` are P and Q. For F′ and F″ there are separate sums below and above the anchor. A gate that
    takes its own steps stores other sums in their place: of the weights in (0, 1), of their slopes, and the
    part of k that is left for them.
    """

    p: Tensor
    q: Tensor
    first: tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]
    second: tuple[Tensor, Tensor] | None


class Search(NamedTuple):
    """The state of the search: the offset, its bracket, P − Q, the length of the last step and its sign.

    The sign is 0 after a bisection.
    """

    offset: Tensor
    low: Tensor
    high: Tensor
    difference: Tensor
    last_step: Tensor
    way: Tensor


def bracket(gate: Gate, k: Tensor, n_finite: Tensor, gap: Tensor) -> tuple[Tensor, Tensor]:
    """A bracket for the offset: k of ``n_finite``, with this gap between the anchor and the next score."""
    others, rest = n_finite - k.ceil() + 1, k.floor() + 1
    low = gate.quantile((k - (k.ceil() - 1)) / others, (n_finite - k) / others)
    return low, (gate.quantile(k / rest, (rest - k) / rest) + gap).clamp_max(gate.reach)


def tie_share(k: Tensor, n_strictly: Tensor, n_weakly: Tensor) -> tuple[Tensor, Tensor]:
    """Whether ties at the anchor count as below it, and the weight of each if all other scores are far away.

    Ties go to the nearer side. The share is 0 if there is no other tie, or if it is so near to 0 or 1 that
    the neighbouring scores decide.
    """
    ties_below = k - n_strictly <= n_weakly - k
    ties = n_weakly - n_strictly
    left = k - n_strictly
    among = (ties > 1) & (left > 0.02 * ties) & (left < 0.98 * ties)
    return ties_below, torch.where(among, left / ties.clamp_min(1), 0.0)


def started(gate: Gate, low: Tensor, high: Tensor, share: Tensor) -> Search:
    """The first offset: the middle of the bracket, or where ties at the anchor share what is left."""
    e = torch.where(share > 0, gate.quantile(share, 1 - share), (low + high) / 2)
    e = torch.minimum(torch.maximum(e, low), high)
    # The root can lie on the edge, and rounding just beyond it.
    low, high = (low * (1 - 1e-3), high * (1 + 1e-3)) if gate.reach < math.inf else (low - 1, high + 1)
    return Search(e, low, high, torch.zeros_like(e), 2 * (high - low), torch.zeros_like(e))


def advanced(gate: Gate, at: Search, sums: RowSums, k: Tensor, eps: float) -> tuple[Search, Tensor]:
    """The search after one more step, and which rows have converged.

    Args:
        gate: F.
        at: the state of the search.
        sums: the sums at its offset.
        k: budgets.
        eps: the rounding error of the weights that were summed.
    """
    e, low, high, _, last_step, way = at
    rounding = 4 * eps
    relative = gate.reach < math.inf  # e > 0 then, of the size of the weights: steps are measured by it
    # After a step that is close, the next is exact: unless scores cross a corner of F in it.
    close = rounding if relative else 0.1 * eps ** (1 / gate.convergence)
    f = sums.p - sums.q
    if relative:  # weights reach 1: what is left of the difference may be their rounding
        f = torch.where(f.abs() <= rounding * k, 0.0, f)
    low = torch.where(f < 0, torch.maximum(low, e), low)
    high = torch.where(f > 0, torch.minimum(high, e), high)
    step = gate.step(*sums.first) if relative else _halley(sums)
    unit = e.abs() if relative else torch.ones_like(e)
    proposal = e - step
    inside = (proposal > low) & (proposal < high)
    if gate.convergence == 2:  # steps must shrink: between two pieces of F they may go to and fro
        shrinks = step.abs() <= torch.maximum(last_step / 2, close * unit)
        # Those of a piecewise F are exact in a piece: one way they may be as long as before.
        inside = inside & (shrinks | (step.sign() * way > 0) if relative else shrinks)
    inside = inside | (step.abs() <= rounding * (e.abs() if relative else 1 + e.abs()))
    last_step = torch.where(inside, step.abs(), 2 * (high - low))
    way = torch.where(inside, step.sign(), 0.0)
    e = torch.where(f == 0, e, torch.where(inside, proposal, (low + high) / 2))
    done = (f == 0) | (inside & (step.abs() < close * unit)) | ~(f == f)
    return Search(e, low, high, f, last_step, way), done


def _halley(sums: RowSums) -> Tensor:
    h = sums.p.log() - sums.q.log()
    slope_p, slope_q = sums.first[0] / sums.p, sums.first[1] / sums.q
    slope = slope_p + slope_q
    bend = slope_q.square() - slope_p.square()
    if sums.second is not None:
        bend = bend + sums.second[0] / sums.p - sums.second[1] / sums.q
    curved = 2 * slope.square() - h * bend
    return torch.where(curved > 0, 2 * h * slope / curved, h / slope)
