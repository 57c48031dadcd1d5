r"""Gumbel top-k: the k largest of scores plus Gumbel noise. This is successive sampling; π cannot be given.

With :math:`w = e^\theta`, the set s is drawn with probability

.. math:: p(s) = \int_0^1 \prod_{i \in s} \big(1 - u^{w_i/W}\big)\, du, \qquad W = \sum_{j \notin s} w_j,

computed after the substitution :math:`u = \exp(-e^y)`, with which the trapezoidal rule converges
geometrically. References: Plackett (1975); Luce (1959); Yellott (1977) for the Gumbel keys.
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import torch
from torch import Tensor

from khot.designs.exponential._natural_parameters import (
    FAR,
    clamped,
    has_kernel,
    inclusion,
    log_partition,
    tilt,
    vjp,
)
from khot.designs.order_sampling._family import OrderSampling, integral, nodes_around
from khot.designs.registry import register
from khot.kernels import cpu
from khot.relaxations import hard_topk
from khot.relaxations._special import softplus

__all__ = ["PlackettLuce"]


@register
class PlackettLuce(OrderSampling):
    r"""Plackett–Luce: k successive draws without replacement, each with probabilities ∝ :math:`e^\theta`.

    .. math:: p(i_1, …, i_k) =
        \prod_{r=1}^k \frac{e^{\theta_{i_r}}}{\sum_{j \notin \{i_1 … i_{r-1}\}} e^{\theta_j}}

    This is the distribution of the k largest of θ + Gumbel noise, and of ``torch.multinomial`` without
    replacement. It takes only θ: θ = log π does *not* include unit i with probability πᵢ. For k > 1 large π
    come out too small and small ones too large. ``exact_inclusion`` is False. ``mean`` (the same as
    ``true_inclusion``) and ``log_prob`` are computed by quadrature, and are differentiable. Cost of a draw:
    O(n) and a top-k.

    Args:
        k: how many units are drawn.
        logits: θ, shape (…, n); −inf is never drawn, +inf always.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = PlackettLuce(2, logits=torch.tensor([0.9, 0.6, 0.4, 0.1]).log())
        >>> design.mean
        tensor([0.7790, 0.6362, 0.4599, 0.1248])
        >>> design.log_prob_ordered(torch.tensor([[0, 1], [1, 0]])).exp()
        tensor([0.2455, 0.1929])
        >>> design.log_prob(torch.tensor([1.0, 1.0, 0.0, 0.0])).exp()
        tensor(0.4383)

    Reference: Yellott (1977); Kool, van Hoof & Welling (2019), arXiv:1903.06059.
    """

    parameters = ("logits",)
    logits: Tensor

    def __init__(self, k: float, *, logits: Tensor, validate_args: bool | None = None) -> None:
        self._set_up(k, {"logits": logits}, validate_args)

    @functools.cached_property
    def _theta(self) -> Tensor:
        with torch.enable_grad():
            return self._parameter.double()

    def _from_scores(self) -> Tensor:
        return self._true_inclusion

    def _parameters_of_keys(self) -> Tensor:
        """Scores beside the threshold, so that ties of huge ones are not lost in rounding."""
        return tilt(self._theta.detach(), int(self.k))

    def _keys(self, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        noise = torch.empty(rows.shape, dtype=rows.dtype, device=rows.device).exponential_(
            generator=generator
        )
        return rows - noise.clamp_min_(2.0**-54).log_()

    def _log_prob(self, x: Tensor) -> Tensor:
        """The logarithm of the probability of the set, in whatever order it was drawn."""
        k = int(self.k)
        theta = self._theta.expand(x.shape)
        if k == 0:
            nothing = torch.where(theta.isfinite(), 0.0, 0.0 * theta.nan_to_num(0, 0, 0)).sum(-1)
            return torch.where(x.any(-1), -math.inf, nothing)
        possible = (x.sum(-1) == k) & ~torch.where(x, theta == -math.inf, theta == math.inf).any(-1)
        rest, others = _log_sum(theta, ~x)
        decided = ~possible | ~others  # impossible, or nothing else to draw
        chosen = theta.gather(-1, x.to(torch.uint8).topk(k, sorted=False).indices) - rest.unsqueeze(-1)
        total = _log_integral(torch.where(decided.unsqueeze(-1), 0.0, chosen))
        total = torch.where(decided, 0.0, total.clamp_max(0))
        return torch.where(possible, total, -math.inf)

    def log_prob_ordered(self, indices: Tensor) -> Tensor:
        """The logarithm of the probability of drawing k units in this order, in closed form.

        Units at +inf come before all others, in any order among themselves.

        Args:
            indices: k different int64 indices in the order of drawing, shape broadcastable to (…, k).
        """
        name, k = "PlackettLuce.log_prob_ordered", int(self.k)
        if indices.dtype != torch.long:
            raise TypeError(f"{name}: indices must be int64, got {indices.dtype}")
        if indices.dim() == 0 or indices.shape[-1] != k:
            raise ValueError(f"{name}: indices must have k = {k} entries, got shape {tuple(indices.shape)}")
        if self._validate_args and indices.numel():
            low, high = (int(v) for v in indices.aminmax())
            if low < 0 or high >= self.n:
                raise ValueError(f"{name}: indices must lie in [0, {self.n}), got values in [{low}, {high}]")
            if bool((indices.sort(-1).values.diff(dim=-1) == 0).any()):
                raise ValueError(f"{name}: indices must be different, got some twice")
        shape: torch.Size = cast("Any", torch).broadcast_shapes(indices.shape[:-1], self.batch_shape)
        indices = indices.expand(*shape, k)
        theta = self._theta.expand(*shape, self.n)
        x = torch.zeros(theta.shape, dtype=torch.bool, device=theta.device).scatter(-1, indices, True)
        certain = theta == math.inf
        finite = theta.isfinite()
        chosen, sure, possible = (v.gather(-1, indices) for v in (theta, certain, finite))
        rest, others = _log_sum(theta, ~x & ~certain)
        # Sums over what is left before each draw, from the last one back; −inf would have no gradient.
        low = torch.where(possible, chosen, 0.0).detach().amin(-1, keepdim=True)
        floor = torch.minimum(low, rest.detach().unsqueeze(-1)) - 1e4
        ends = torch.where(others.unsqueeze(-1), rest.unsqueeze(-1), floor)
        tail = torch.cat([ends, torch.where(possible, chosen, floor).flip(-1)], -1)
        left = tail.logcumsumexp(-1)[..., 1:].flip(-1)
        sure_left = (certain & ~x).sum(-1, keepdim=True) + sure.long().flip(-1).cumsum(-1).flip(-1)
        share = -sure_left.clamp_min(1).double().log()
        terms = torch.where(sure, share, torch.where(possible, chosen, 0.0) - left)
        allowed = (sure | (possible & (sure_left == 0))).all(-1)
        return torch.where(allowed, torch.where(sure | possible, terms, 0.0).sum(-1), -math.inf).to(
            self._dtype
        )

    @functools.cached_property
    def _true_inclusion(self) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.enable_grad():
            t, k = tilt(self._theta, int(self.k)), int(self.k)
            settled = (t > 0).double()
            if k in (0, self.n) or t.numel() == 0:
                return torch.where(t.isinf(), settled, t)  # all are, but the scores they are of have a graph
            return torch.where(t.isinf(), settled, _inclusion(clamped(t), k))

    def _mode(self) -> Tensor:
        """The k largest θ."""
        return hard_topk(self._theta.detach(), int(self.k))


def _log_above(q: Tensor) -> Tensor:
    """log(1 − exp(−e^q)): how likely a key with score q is above 0."""
    small = q < -20
    inside = torch.where(small, -20.0, q).clamp_max(6)
    return torch.where(small, q - q.clamp_max(-20).exp() / 2, torch.log(-torch.expm1(-torch.exp(inside))))


def _log_sum(theta: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """log Σe^θ over the units in ``where``, and whether there are any; 0 if not. Shape (…)."""
    where = where & theta.isfinite()
    kept = torch.where(where, theta, 0.0)
    top = torch.where(where, theta.detach(), -math.inf).amax(-1, keepdim=True)
    found = top > -math.inf
    total = torch.where(where, (kept - torch.where(found, top, 0.0)).exp(), 0.0).sum(-1, keepdim=True)
    value = torch.where(found, top + torch.where(found, total, 1.0).log(), 0.0)
    return value.squeeze(-1), found.squeeze(-1)


def _log_integral(a: Tensor) -> Tensor:
    """log ∫ Π(1 − exp(−e^(a + y))) e^(y − e^y) dy over the units of a set (…, k), with a = θ − log W."""
    k = a.shape[-1]
    fixed = a.detach()

    def exponent(y: Tensor, a: Tensor = fixed) -> Tensor:
        return _log_above(a.unsqueeze(-1) + y.unsqueeze(-2)).sum(-2) + y - y.exp()

    with torch.no_grad():
        low = fixed.new_zeros((*fixed.shape[:-1], 1))
        high = low + math.log(k + 1)
        for _ in range(40):
            middle = (low + high) / 2
            slope = _slope(fixed + middle).sum(-1, keepdim=True) + 1 - middle.exp()
            low, high = torch.where(slope > 0, middle, low), torch.where(slope > 0, high, middle)
        e = (fixed + low).clamp(-30, 6).exp()
        curvature = (_slope(fixed + low) * (e / -torch.expm1(-e) - 1)).sum(-1, keepdim=True) + low.exp()
        largest = exponent(low)
    nodes, step = nodes_around(exponent, low, 50 + math.log(k + 1), _finest(curvature, k))
    total = integral(lambda y: (exponent(y, a) - largest).exp().sum(-1), nodes, a.numel())
    return (total * step.squeeze(-1)).log() + largest.squeeze(-1)


def _slope(q: Tensor) -> Tensor:
    """The derivative of `_log_above`."""
    e = q.clamp(-30, 6).exp()
    return e / torch.expm1(e)


def _finest(curvature: Tensor, k: int) -> Tensor:
    """A step fine enough for a peak of that curvature, and for the edge that the minimum of k keys makes."""
    return (0.5 / curvature.sqrt()).clamp_max(min(1 / 6, 0.25 / max(1.0, math.log(k))))


def _untilted(o: Tensor) -> tuple[Tensor, Tensor]:
    zero = o.new_zeros((*o.shape[:-1], 1))
    return zero, zero


def _inclusion(t: Tensor, k: int) -> Tensor:
    r"""P(xᵢ = 1), over the threshold z: given that exactly k keys are above z, they are a conditional Poisson
    sample, and each unit below has its key at z with density rⱼ = e^(tⱼ − z).
    """

    def odds(z: Tensor) -> Tensor:
        """log odds of keys above z, (…, N, n): far from any tilt, so it takes the product tree."""
        q = t.unsqueeze(-2) - z.unsqueeze(-1)
        return clamped(_log_above(q) + q.clamp_max(math.log(FAR) + 1).exp())

    seen = has_kernel(t.detach(), k)
    compiled = seen and not t.requires_grad

    def log_count(z: Tensor) -> Tensor:
        """log P(exactly k keys are above z)."""
        o = odds(z)
        if seen:
            return cpu.poisson_inclusion(o, *_untilted(o), k)[1].squeeze(-1).log()
        return log_partition(o, k, scan=False) - softplus(o).sum(-1)

    def part(z: Tensor) -> Tensor:
        o = odds(z)
        r = (t.unsqueeze(-2) - z.unsqueeze(-1)).clamp_max(math.log(FAR)).exp()
        if compiled:
            m, exactly = cpu.poisson_inclusion(o, *_untilted(o), k)
            with_others = cpu.poisson_covariance(o, *_untilted(o), k, r)
        else:
            m, product = vjp(lambda s: inclusion(s, k, scan=False), o)
            exactly = (log_partition(o, k, scan=False) - softplus(o).sum(-1)).exp().unsqueeze(-1)
            with_others = product(r)[0]
        # Σⱼ rⱼ P(i drawn, j not).
        return (exactly * (m * (r * (1 - m)).sum(-1, keepdim=True) - with_others)).sum(-2)

    with torch.no_grad():
        low = t.new_full((*t.shape[:-1], 1), -FAR - 50)
        high = -low
        for _ in range(60):
            middle = (low + high) / 2
            many = torch.sigmoid(odds(middle)).sum(-1) > k
            low, high = torch.where(many, middle, low), torch.where(many, high, middle)
        e = (t - low).clamp(-30, 6).exp()
        curvature = (e * e / torch.expm1(e)).sum(-1, keepdim=True)
        nodes, step = nodes_around(log_count, low, 2 * FAR + 50, _finest(curvature, k))
    entries = t.numel() * min(k, t.shape[-1] - k)
    return (integral(part, nodes, entries, transforms=True) * step).clamp(0, 1)
