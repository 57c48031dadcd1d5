"""Entropic optimal transport of scores to the anchors k, k − 1, …, 1 and 0: which entry takes which rank.

With costs (zᵢ − a)² the plan is exp(a·zᵢ + g_a), in units of the temperature, normalised over the anchors.
The anchor k + 1 − r stands for rank r and takes the mass of one entry; the anchor 0 takes the rest. Between
rank r and the next anchor an entry has the log-odds zᵢ − t_r. So the unknowns are k thresholds t, with

    Σᵢ S_ir = r,     S_ir = P(entry i takes one of the ranks 1 … r),
    −∂(Σᵢ S_il)/∂t_m = Σᵢ S_il (1 − S_im)   for l ≤ m, symmetric.

The equations are the gradient of a convex function of t. Newton's method, damped so that the function cannot
increase, takes 3–15 steps; Sinkhorn's alternate scaling takes thousands at low temperatures. To keep all
digits at every scale, thresholds are relative to nearby scores, and tails are summed instead of subtracted
from 1.

For derivatives, two more Newton steps are taken with a graph, starting at the root, which is held constant.
One such step is the implicit function theorem; a step squares the error, so two are right to third order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.kernels.loops import as_operation, loops_are_operations
from khot.kernels.sorting import argsort, unsorted
from khot.relaxations._cumulative import cumulative
from khot.relaxations._linear_systems import solved
from khot.relaxations._ranked_rows import Allowed, in_full

__all__ = ["transport_rows", "transport_weights"]

_FAR = 1e4  # beyond these log odds nothing is shared
_STEPS = 24
_CLOSE = 1e-5  # relative to the tails; the two last steps square it twice
_RIDGE = 1e-15  # of a matrix with diagonal 1
_TINY = 1e-280


class _Problem(NamedTuple):
    """Sorted entries (…, n) in K boundaries, of which the first min(k, allowed − 1) are ``active`` (…, 1, K).

    ``place`` (…, n, 1) is the slot of each entry in the hard sorting, ``allowed`` (…, n, 1) which take part.
    """

    differences: Tensor
    place: Tensor
    active: Tensor
    allowed: Tensor


def transport_weights(z: Tensor, allowed: Allowed, k: Tensor | None, most: int) -> Tensor:
    """The mass (…, n) in the ranks 1 … k."""
    allowed, k = in_full(z, allowed, k, most)
    plan, back = _plan(z, allowed, k, most)
    ranked = torch.arange(plan.shape[-1], device=z.device) < k.unsqueeze(-1)
    return torch.where(ranked, plan, 0).sum(-1).clamp_max(1).gather(-1, back)


def transport_rows(z: Tensor, allowed: Tensor, ranks: Tensor) -> Tensor:
    """The rows (…, m, n) of consecutive ``ranks`` (…, m), the last of which is k."""
    plan, back = _plan(z, allowed, ranks[..., -1:], ranks.shape[-1])
    slot = (ranks - 1).clamp(0, plan.shape[-1] - 1).unsqueeze(-1)
    rows = plan.transpose(-1, -2).gather(-2, slot.expand(*slot.shape[:-1], z.shape[-1]))
    rows = rows.gather(-1, back.unsqueeze(-2).expand(rows.shape))
    return rows / rows.sum(-1, keepdim=True).clamp_min(_TINY)


def _plan(z: Tensor, allowed: Tensor, k: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The plan (…, n, slots) of the sorted entries, and where each entry of the row is among them.

    If k entries or fewer are allowed, there is no rest and its slot is the last rank.
    """
    n = z.shape[-1]
    order = argsort(torch.where(allowed, z, -math.inf).detach(), descending=True)[1]
    place = torch.arange(n, device=z.device)
    back = unsorted(place.expand(order.shape), order)
    count = allowed.sum(-1, keepdim=True)
    boundary = torch.arange(max(min(most, n - 1), 0), device=z.device)
    last = torch.minimum(k.long(), count - 1).clamp_min(0)
    active = boundary < last
    best = z.gather(-1, order)
    taken = (place < count).unsqueeze(-1)
    if boundary.shape[-1] == 0:
        return torch.where(taken, torch.ones_like(best).unsqueeze(-1), 0), back
    # A threshold lies near the middle of the two scores it separates.
    fixed = best.detach()
    middle = fixed[..., :-1] / 2 + fixed[..., 1:] / 2
    middle = middle[..., : boundary.shape[-1]].unsqueeze(-2)
    differences = torch.where(taken & active.unsqueeze(-2), best.unsqueeze(-1) - middle, 0).clamp(-_FAR, _FAR)
    problem = _Problem(differences, torch.minimum(place, last).unsqueeze(-1), active.unsqueeze(-2), taken)
    still = problem._replace(differences=differences.detach())
    shift = _root_of(*still) if loops_are_operations(of_constants=True) else _root(*still)
    for _ in range(2):
        shift = shift + _newton_step(*_conditions(problem, shift)[1:])
    return _conditions(problem, shift)[0], back


def _root(differences: Tensor, place: Tensor, active: Tensor, allowed: Tensor) -> Tensor:
    """The thresholds, relative to the middles, nearly; without a graph."""
    problem = _Problem(differences, place, active, allowed)
    shift = torch.zeros_like(differences[..., 0, :])
    may_stop_early = is_plain(differences)
    for _ in range(_STEPS):
        _, excess, curvature = _conditions(problem, shift)
        step = _newton_step(excess, curvature)
        if may_stop_early and bool((excess.abs() <= _CLOSE * _diagonal(curvature)).all()):
            break
        # Log odds change by at most the spread s of these sums; with log(1 + s) instead, the convex function
        # whose gradient is zero here does not increase (it is self-concordant in that sense).
        change = cumulative(step.flip(-1))
        spread = change.amax(-1, keepdim=True).clamp_min(0) - change.amin(-1, keepdim=True).clamp_max(0)
        shift = shift + step * torch.where(spread > 1e-3, torch.log1p(spread) / spread.clamp_min(1e-3), 1)
    return shift.contiguous()


def _look_at_root(differences: Tensor, *others: Tensor) -> Tensor:
    return torch.empty_like(differences[..., 0, :], memory_format=torch.contiguous_format)


_root_of = as_operation(
    "transport_root(Tensor differences, Tensor place, Tensor active, Tensor allowed) -> Tensor",
    _root,
    _look_at_root,
)


def _conditions(problem: _Problem, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The plan (…, n, K + 1), how much Σᵢ S_ir exceeds r (…, K), and minus its derivative (…, K, K)."""
    plan = _slots(problem, problem.differences - shift.unsqueeze(-2))
    inside = cumulative(plan)[..., :-1]  # P(rank ≤ r)
    outside = cumulative(plan.flip(-1)).flip(-1)[..., 1:]
    n, boundaries = problem.differences.shape[-2:]
    entry = torch.arange(n, device=plan.device).unsqueeze(-1)
    above = entry <= torch.arange(boundaries, device=plan.device)
    excess = torch.where(above, -outside, inside).sum(-2)
    products = inside.transpose(-1, -2) @ outside
    curvature = products.triu() + products.triu(1).transpose(-1, -2)
    return plan, torch.where(problem.active.squeeze(-2), excess, 0), curvature


def _slots(problem: _Problem, log_odds: Tensor) -> Tensor:
    """The softmax over slots whose neighbours have these odds, summed from each entry's own place."""
    _, place, active, allowed = problem
    boundary = torch.arange(log_odds.shape[-1], device=log_odds.device)
    below = boundary >= place
    down = cumulative(torch.where(below & active, -log_odds, 0))
    up = cumulative(torch.where(~below & active, log_odds, 0).flip(-1)).flip(-1)
    own = torch.zeros_like(log_odds[..., :1])
    logits = torch.cat([own, down], -1) + torch.cat([up, own], -1)
    absent = torch.cat([torch.zeros_like(active[..., :1]), ~active], -1)
    return torch.where(allowed, torch.softmax(logits.masked_fill(absent, -math.inf), -1), 0)


def _diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)


def _newton_step(excess: Tensor, curvature: Tensor) -> Tensor:
    """The solution of curvature · step = excess, which may be of any scale in each equation."""
    diagonal = _diagonal(curvature).detach()
    scale = diagonal.clamp_min(_TINY).rsqrt()
    scaled = curvature * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    scaled = scaled + torch.diag_embed(torch.where(diagonal > _TINY, _RIDGE, 1.0))
    # It never raises: there is a ridge, and NaN scores have a NaN answer.
    return solved(scaled, excess * scale) * scale
