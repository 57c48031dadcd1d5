r"""Tillé's elimination: start with all n units and eliminate one at a time until k are left.

When one of m + 1 units is eliminated, it is unit i with probability :math:`v_m(i) = 1 - a_m(i) / a_{m+1}(i)`,
where :math:`a_m = \min(1, c_m \pi)` are inclusion probabilities for m units. With units in increasing order
of π, at step t = n − 1 − m

- a unit is safe while :math:`a_m = 1`,
- at the step τ at which it is *released* it is eliminated with probability :math:`q = 1 - c_\tau \pi`,
- from then on it is in the pool, whose units all have the same probability :math:`w_t = 1 - c_t / c_{t-1}`.

It does not matter which units have left the pool, only how many are in it: the number released so far, which
is known in advance, minus the t units that have been eliminated. So the probability of a set is a product
over steps, joint probabilities are products that telescope, and a draw is a shuffle in place (Fisher &
Yates) whose positions are all known in advance.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.designs._proportional import held_from
from khot.kernels import cpu, sorting
from khot.relaxations._chunks import at_once
from khot.relaxations._temperature import inverse

__all__ = ["Elimination", "elimination", "joint_of_kept", "log_prob_of_kept", "strike_off"]

_NEVER = 1e-280  # a π that counts as 0, so that its inverse, times what a gradient brings, is in range


class Elimination(NamedTuple):
    """Units in increasing order of π, shape (…, n), and the T = n − k steps, shape (…, T).

    ``order`` sorts the units; ``pi``, ``release`` (T if never) and ``q`` belong to the units in that order.
    ``c`` and ``w`` belong to steps, and ``released`` counts the units released up to and including a step.
    """

    order: Tensor
    pi: Tensor
    release: Tensor
    q: Tensor
    c: Tensor
    w: Tensor
    released: Tensor


def elimination(inclusion: Tensor, k: int) -> Elimination:
    """The steps for float64 probabilities (…, n) with sum k."""
    n = inclusion.shape[-1]
    steps = n - k
    pi, order = inclusion.sort(dim=-1, stable=True)
    pi = torch.where(pi > _NEVER, pi, 0.0)
    bound, sums = held_from(pi)
    place = torch.arange(n, device=pi.device)
    impossible = (pi <= 0).sum(-1, keepdim=True)
    release = torch.maximum((n - bound.ceil()).clamp(-1, steps - 1).long(), impossible)
    # What cannot be drawn goes in the first steps, one by one; what is certain never does.
    release = torch.where(pi <= 0, place, torch.where(pi >= 1, steps, release))
    step = torch.arange(steps, device=pi.device).expand(*pi.shape[:-1], steps).contiguous()
    released = torch.searchsorted(release.contiguous(), step, right=True)
    total = sums.gather(-1, (released - 1).clamp_min(0))
    # By a logarithm: the square of a sum may be below the range of float64, but no gradient is above it.
    c = torch.where(total > 0, (released - 1 - step) * inverse(torch.where(total > 0, total, 1.0)), 0.0)
    before = torch.nn.functional.pad(c, (1, 0))[..., :-1]
    w = torch.where(before > 0, 1 - c / torch.where(before > 0, before, 1.0), 0.0).clamp(0, 1)
    at_release = torch.nn.functional.pad(c, (0, 1)).gather(-1, release)
    q = torch.where(pi >= 1, 0.0, (1 - at_release * pi).clamp(0, 1))
    return Elimination(order, pi, release, q, c, w, released)


def strike_off(
    inclusion: Tensor, k: int, samples: int, generator: torch.Generator | None, *, kept: bool
) -> Tensor:
    """Increasing indices (samples, …, k) of the units that are left, or (samples, …, n − k) of the others.

    ``inclusion`` is as in `elimination`.
    """
    n, steps = inclusion.shape[-1], inclusion.shape[-1] - k
    width = k if kept else steps
    if samples * inclusion.numel() == 0 or steps == 0:
        everything = torch.arange(width, device=inclusion.device)
        return everything.expand(samples, *inclusion.shape[:-1], width)
    if cpu.usable(inclusion):
        pi, order = sorting.argsort(inclusion)
        strike = functools.partial(cpu.eliminate, pi, order, kept=kept)
        rows: tuple[int, ...] = inclusion.shape[:-1]
    else:
        strike = functools.partial(_strike_off, elimination(inclusion, k), kept=kept)
        rows = (inclusion.numel() // n,)
    size = at_once(inclusion.numel())
    parts: list[Tensor] = []
    for first in range(0, samples, size):
        shape = (min(size, samples - first), *rows, steps)
        u = torch.rand(shape, dtype=torch.float64, device=inclusion.device, generator=generator)
        parts.append(strike(u))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _strike_off(plan: Elimination, u: Tensor, *, kept: bool) -> Tensor:
    """From uniform variables (samples, rows, T)."""
    n, steps = plan.pi.shape[-1], plan.c.shape[-1]
    batch = plan.pi.shape[:-1]
    samples, rows = u.shape[:2]
    slots = _slots(plan, u.transpose(0, 1).contiguous())
    units = torch.arange(n, device=slots.device).repeat(rows, samples, 1)
    for t in range(steps):
        slot, now = slots[..., t : t + 1], units[..., t : t + 1].clone()
        units[..., t : t + 1] = units.gather(-1, slot)
        units.scatter_(-1, slot, now)
    chosen = units[..., steps:] if kept else units[..., :steps]
    order = plan.order.reshape(rows, 1, n).expand(rows, samples, n)
    indices = order.gather(-1, chosen).sort(-1).values
    return indices.transpose(0, 1).reshape(samples, *batch, indices.shape[-1])


def _slots(plan: Elimination, u: Tensor) -> Tensor:
    """Where the unit that goes at each step stands, in the shape of u: beyond the t that went before."""
    n, steps = plan.pi.shape[-1], plan.c.shape[-1]
    rows, samples = u.shape[:2]
    step = torch.arange(steps, device=plan.pi.device)
    released = plan.released.view(rows, 1, steps)
    before = torch.nn.functional.pad(released, (1, 0))[..., :-1]
    sums = plan.q.view(rows, 1, n).cumsum(-1)
    upto = torch.nn.functional.pad(sums, (1, 0))
    first = upto.gather(-1, before)
    new = upto.gather(-1, released) - first
    w = plan.w.view(rows, 1, steps)
    pool = w * (before - step)
    v = u * (pool + new)
    in_pool = step + torch.where(w > 0, v / torch.where(w > 0, w, 1.0), 0.0).long()
    target = (first + v - pool).reshape(rows, samples * steps)
    among_new = torch.searchsorted(sums.squeeze(1), target, right=True).view(rows, samples, steps)
    return torch.where(
        v < pool, torch.minimum(in_pool, before - 1), torch.clamp(among_new, min=before, max=released - 1)
    )


def log_prob_of_kept(plan: Elimination, kept: Tensor) -> Tensor:
    """log P(the booleans ``kept`` (*sample, …, n), k in each row, are left), in float64."""
    steps = plan.c.shape[-1]
    gone = ~kept.gather(-1, plan.order.expand(kept.shape))
    release = plan.release.expand(kept.shape)
    zeros = torch.zeros((*kept.shape[:-1], steps + 1), dtype=torch.float64, device=kept.device)
    new = zeros.scatter_add(-1, release, torch.where(gone, plan.q, 0.0))
    count = zeros.scatter_add(-1, release, gone.double())
    pool = count.cumsum(-1) - count - torch.arange(steps + 1, device=kept.device)
    chance = new[..., :-1] + plan.w * pool[..., :-1].clamp_min(0)
    possible = (chance > 0).all(-1) & (count[..., -1] == 0)
    total = torch.where(chance > 0, chance, 1.0).log().sum(-1)
    return torch.where(possible, total.clamp_max(0), -math.inf)


def joint_of_kept(plan: Elimination) -> Tensor:
    """P(both units are left), (…, n, n) in the order of the units."""
    n, steps = plan.pi.shape[-1], plan.c.shape[-1]
    certain = plan.release == steps
    at = plan.release.clamp_max(max(0, steps - 1))
    # Both survive all steps after t with probability Π (1 − 2w).
    after = (1 - 2 * plan.w).clamp_min(0).flip(-1).cumprod(-1).flip(-1)
    after = torch.nn.functional.pad(after, (0, 1), value=1.0)[..., 1:]
    c, ones = plan.c, torch.ones_like(plan.pi)
    if steps == 0:
        return torch.ones_like(plan.pi.unsqueeze(-1) * ones.unsqueeze(-2))
    before = torch.nn.functional.pad(c, (1, 0))[..., :-1]
    later = torch.where(
        certain, ones, (c.gather(-1, at) - before.gather(-1, at) * plan.q) * after.gather(-1, at)
    )
    pi_i, pi_j = plan.pi.unsqueeze(-1), plan.pi.unsqueeze(-2)
    together = (c.gather(-1, at).unsqueeze(-1) * (pi_i + pi_j) - 1) * after.gather(-1, at).unsqueeze(-1)
    same_step = (plan.release.unsqueeze(-1) == plan.release.unsqueeze(-2)) & ~certain.unsqueeze(-1)
    joint = torch.where(same_step, together, pi_i * later.unsqueeze(-2))
    joint = torch.where(plan.release.unsqueeze(-1) > plan.release.unsqueeze(-2), joint.mT, joint).clamp_min(0)
    joint = torch.where(torch.eye(n, dtype=torch.bool, device=joint.device), pi_i, joint)
    back = plan.order.argsort(-1)
    rows = joint.gather(-2, back.unsqueeze(-1).expand(joint.shape))
    return rows.gather(-1, back.unsqueeze(-2).expand(joint.shape))
