"""Conditional Poisson sampling: independent draws, given that exactly k units are drawn.

Among all designs with the same inclusion probabilities it has the largest entropy. It is the exponential
family of k-hot vectors; k = 1 is the softmax. References: Hájek (1964); Chen, Dempster & Liu (1994).
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from torch.distributions import register_kl  # pyright: ignore[reportUnknownVariableType]

from khot.designs.base import KHotDistribution
from khot.designs.exponential._natural_parameters import (
    FAR,
    clamped,
    compiled_inclusion,
    draw,
    has_kernel,
    inclusion,
    joint_inclusion,
    log_partition,
    log_weight,
    threshold,
    tilt,
)
from khot.designs.exponential._weights_from_inclusion import weights_from_inclusion
from khot.designs.registry import register
from khot.relaxations import hard_topk, straight_through
from khot.relaxations._chunks import chunks

__all__ = ["ConditionalPoisson", "KHotCategorical", "KHotCategoricalStraightThrough"]

_AT_ONCE = 1 << 17  # entries in float64 at a time: they stay in the cache


@register
class ConditionalPoisson(KHotDistribution):
    r"""The k-hot distribution of maximum entropy; also called ``KHotCategorical``.

    .. math:: p(x) = \frac{\exp\langle\theta, x\rangle}{e_k(\exp\theta)}, \qquad
        \pi = \nabla_\theta A, \qquad \operatorname{Cov} = \nabla^2_\theta A, \qquad
        A = \log e_k(\exp\theta)

    with the elementary symmetric polynomial e_k. ``logits`` are the natural parameters θ, so for k = 1 this
    is ``OneHotCategorical``, and π is *not* ``sigmoid_topk(logits, k)`` (though close for large k). With
    ``scores``, π is ``sigmoid_topk(scores, k)``, as in every design. For ``probs`` and ``scores`` the
    matching θ is solved for, with an implicit gradient that needs an n × n matrix. Gradients in ``probs`` are
    defined up to a constant, since their sum is fixed.

    Cost: O(nk) for small k, O(n log² k) otherwise.

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        logits: instead of ``probs`` and ``scores``: natural parameters; −inf is never drawn, +inf always.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = ConditionalPoisson(2, logits=torch.tensor([1.0, 0.0, 0.0]).log1p())
        >>> design.log_prob(torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])).exp()
        tensor([0.4000, 0.2000])
        >>> design.mean
        tensor([0.8000, 0.6000, 0.6000])

    Reference: Chen, Dempster & Liu (1994), Weighted Finite Population Sampling to Maximize Entropy.
    """

    parameters = ("probs", "scores", "logits")
    logits: Tensor

    def __init__(
        self,
        k: float,
        *,
        probs: Tensor | None = None,
        scores: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_up(k, {"probs": probs, "scores": scores, "logits": logits}, validate_args)

    @functools.cached_property
    def _tilted(self) -> Tensor:
        """θ + c with Σσ(θ + c) = k, in float64."""
        with torch.enable_grad():
            given, k = self._given == "logits", int(self.k)
            return tilt(self._parameter if given else weights_from_inclusion(self._inclusion, k), k)

    @functools.cached_property
    def _of_logits(self) -> tuple[Tensor, Tensor] | None:
        """Reference and start of the tilt where the kernels read the logits as they are: all rows are open.

        In float32: what is in float64 anyway is computed once, for all that is asked.
        """
        k = int(self.k)
        if self._given != "logits" or self._short is not None or self._dtype != torch.float32:
            return None
        if not has_kernel(self.logits, k):
            return None
        if not bool(self.logits.isfinite().all()):
            return None
        rows = self.logits.detach().reshape(-1, self.n)
        tilts = [threshold(rows[part], k) for part in chunks(len(rows), self.n, _AT_ONCE)]
        if any(bool(tilt.settled.any()) for tilt in tilts):
            return None
        shape = (*self.batch_shape, 1)
        return (
            torch.cat([tilt.reference for tilt in tilts]).view(shape),
            torch.cat([tilt.start for tilt in tilts]).view(shape),
        )

    @property
    def mean(self) -> Tensor:
        """Inclusion probabilities π."""
        if self._of_logits is None:
            return super().mean
        return compiled_inclusion(self.logits, *self._of_logits, int(self.k))

    def _from_scores(self) -> Tensor:
        if self._given != "logits":
            return super()._from_scores()
        t = self._tilted
        return torch.where(t.isinf(), (t > 0).to(t.dtype), inclusion(clamped(t), int(self.k)))

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        k = int(self.k)
        if self._of_logits is not None and not sample_shape:
            return self._draw_from_logits(*self._of_logits, generator)
        if self._given == "logits" or "_tilted" in self.__dict__:
            return draw(self._tilted.detach(), k, sample_shape, generator)
        # What was solved for is tilted already, near enough.
        return draw(weights_from_inclusion(self._inclusion.detach(), k), k, sample_shape, generator)

    def _draw_from_logits(
        self, reference: Tensor, start: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """One draw for each row, of which a part at a time is in float64."""
        n, k = self.n, int(self.k)
        rows = self.logits.detach().reshape(-1, n)
        reference, start = reference.view(-1, 1), start.view(-1, 1)
        drawn = torch.empty((len(rows), k), dtype=torch.long)
        for part in chunks(len(rows), n, _AT_ONCE):
            t = rows[part].double().sub_(reference[part]).add_(start[part])
            drawn[part] = draw(t, k, torch.Size(), generator)
        return drawn.view(*self.batch_shape, k)

    def _log_prob(self, x: Tensor) -> Tensor:
        """⟨θ, x⟩ − log e_k(exp θ)."""
        t, k = self._tilted, int(self.k)
        total = log_weight(t, x) - log_partition(clamped(t), k)
        possible = (total > -math.inf) & (x.sum(-1) == k)
        # Rounding may leave the probability of a sure set a hair above 1.
        return torch.where(possible, total.clamp_max(0), -math.inf)

    def _entropy(self) -> Tensor:
        """A − ⟨θ, π⟩."""
        t = clamped(self._tilted)
        pi = inclusion(t, int(self.k))
        return (log_partition(t, int(self.k)) - (t * pi).sum(-1)).clamp_min(0)

    def _joint_inclusion(self) -> Tensor:
        """From the Hessian of A."""
        return joint_inclusion(clamped(self._tilted), int(self.k))

    def _mode(self) -> Tensor:
        """The k largest θ."""
        return hard_topk(self._tilted.detach(), int(self.k))

    @property
    def natural_parameters(self) -> Tensor:
        """θ; if computed from ``probs``, the constant is chosen so that σ(θ) sums to k."""
        return self.logits if self._given == "logits" else self._tilted.to(self._dtype)

    @property
    def log_normalizer(self) -> Tensor:
        """A = log e_k(exp θ) at the ``natural_parameters``; +inf if a unit is certain by θ = +inf."""
        theta, mode = self.natural_parameters.double(), self.mode > 0
        log_prob = self._log_prob(mode)
        log_prob = log_prob if self._short is None else self._short.log_prob(mode, log_prob)
        # A = ⟨θ, x⟩ − log p(x) at the mode, which has a finite ⟨θ, x⟩ if any set has.
        return (torch.where(mode, theta, 0.0).sum(-1) - log_prob).to(self._dtype)


KHotCategorical = ConditionalPoisson


class KHotCategoricalStraightThrough(ConditionalPoisson):
    r"""``KHotCategorical`` whose samples carry the gradient of π.

    .. math:: x + \pi - \mathrm{stop}(\pi)

    The values are the k-hot samples and the gradient is that of the mean. For an expectation E[f(x)] this is
    a first-order approximation of the true gradient, exact if f is linear in x. Cost: that of
    :class:`ConditionalPoisson`.

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        logits: instead of ``probs`` and ``scores``: natural parameters.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> logits = torch.tensor([1.0, 0.0, -1.0], requires_grad=True)
        >>> x = KHotCategoricalStraightThrough(2, logits=logits).rsample()
        >>> x.sum().item(), x.requires_grad
        (2.0, True)

    Reference: Bengio, Léonard & Courville (2013), arXiv:1308.3432.
    """

    has_rsample = True

    def rsample(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Samples with the gradient of ``mean``.

        Args:
            sample_shape: how many draws, as a shape: ``(100,)`` for 100.
            generator: source of randomness; by default torch's global generator.
        """
        x = self.sample(sample_shape, generator)
        return straight_through(self.mean.expand(x.shape), x)


@register_kl(ConditionalPoisson, ConditionalPoisson)
def _kl(p: ConditionalPoisson, q: ConditionalPoisson) -> Tensor:  # pyright: ignore[reportUnusedFunction]
    """⟨θ_p − θ_q, π_p⟩ − A_p + A_q; +inf where p draws what q cannot."""
    if p.k != q.k or p.n != q.n:
        raise ValueError(
            f"kl_divergence: p and q must have one k and n, got k = {p.k}, {q.k}, n = {p.n}, {q.n}"
        )
    if p._short is not None or q._short is not None:  # pyright: ignore[reportPrivateUsage]
        raise NotImplementedError(
            "kl_divergence: p and q must have k units to draw in every row, got fewer above -inf"
        )
    k = int(p.k)
    tp, tq = p._tilted, q._tilted  # pyright: ignore[reportPrivateUsage]
    near = clamped(tp)
    pi = inclusion(near, k)
    sure_p, never_p = tp == math.inf, tp == -math.inf
    # Σ_s t_q as log_prob has it: what is beyond FAR costs a set to be without it.
    within, without = tq.clamp_max(FAR), (tq - FAR).clamp_min(0)
    impossible = ((tq == -math.inf) & ~never_p) | ((tq == math.inf) & ~sure_p)
    terms = pi * torch.where(tq == -math.inf, 0.0, within) - (1 - pi) * torch.where(
        tq == math.inf, 0.0, without
    )
    cross = terms.sum(-1) - log_partition(clamped(tq), k)
    own = (pi * near).sum(-1) - log_partition(near, k)
    kl = torch.where(impossible.any(-1), math.inf, (own - cross).clamp_min(0))
    return kl.to(p.mean.dtype)
