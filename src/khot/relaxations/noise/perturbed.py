"""Perturbed top-k: the mean of hard selections of noisy scores.

    y = E[h(x + τZ)],     h the hard top-k,     estimated by the mean over S samples.

h has no useful derivative, but its mean has one. With normal noise

    J = ∂y/∂x = E[h(x + τZ) Zᵀ]/τ,

and with other noise −∇log p(Z) replaces Z in the second factor: 1 − e^{−Z} for Gumbel noise. J is the Hessian
of the convex function E[max_h ⟨x + τZ, h⟩], so it is symmetric, and Jᵀg = Jg is estimated by

    1/(τ(S − 1)) Σ_s (h_s − y) ⟨Z_s, g − mean(g)⟩.

Subtracting y from h_s is the same as subtracting the mean over samples from Z; dividing by S − 1 makes the
estimate exactly unbiased. An entry that no sample changed has gradient 0, and the gradient of a row sums to
0, as the true gradient does.

The noise is not kept: the backward pass draws it again from the generator's state. Cost: noise and an O(n)
selection for each sample, forward and backward; O(n) memory. References: Berthet et al. (2020); Cordonnier
et al. (2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast, get_args

import torch
from torch import Tensor

from khot.relaxations._arguments import Number
from khot.relaxations._chunks import chunks
from khot.relaxations._noise import Noise, gumbel, normal, replay, state_of
from khot.relaxations._plain_arguments import check_choice, check_generator, check_integer, check_switch
from khot.relaxations._problem import relaxed_weights
from khot.relaxations._ranked_rows import Allowed, in_full
from khot.relaxations.hard import hard_topk
from khot.relaxations.registry import Relaxation, register

__all__ = ["check_samples", "perturbed_topk"]

_NOISES = get_args(Noise)

_AT_ONCE = 1 << 18  # noise variables: they fit the cache


def perturbed_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    samples: int = 100,
    noise: Noise = "normal",
    same_noise: bool = False,
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by averaging over noise.

    .. math:: y = \frac1S \sum_{s=1}^S h(x + \tau Z_s) \approx \mathbb{E}[h(x + \tau Z)]

    with h the hard top-k. Value and gradient are random: they are unbiased estimates of the expectation and
    of its derivatives in ``scores`` and in a tensor ``temperature``. There are no second derivatives and
    there is no forward mode.

    Units: the temperature multiplies the noise, so it has the units of the scores. Cost: O(n) work per
    sample, forward and backward; O(n) memory.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, the scale of the noise; a number or a tensor like ``k``.
        samples: number of samples, at least 2. The error falls with its square root.
        noise: ``"normal"`` or ``"gumbel"``. With Gumbel noise and k = 1 the expectation is the softmax of
            x/τ.
        same_noise: use the same noise for all rows; with a seed, the weights of a row then do not depend on
            the rest of the batch.
        generator: source of the noise; by default torch's global generator. The backward pass draws the same
            noise again without advancing it.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k of the noiseless ``scores`` forward, this operator's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, multiples of 1/samples in [0, 1], with sum
        min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> y = perturbed_topk(x, 2, samples=1000, generator=torch.Generator().manual_seed(0))
        >>> y.sum().item(), bool(y[0] > y[2] > y[1])
        (2.0, True)

    Reference: Berthet, Blondel, Teboul, Cuturi, Vert & Bach (2020), Learning with Differentiable Perturbed
    Optimizers; Cordonnier et al. (2021), Differentiable Patch Selection for Image Recognition.
    """
    name = "perturbed_topk"
    check_samples(name, samples)
    check_choice(name, "noise", noise, _NOISES)
    check_switch(name, "same_noise", same_noise)
    check_generator(name, generator)

    def weights_of(z: Tensor, allowed: Allowed, k: Tensor | None, most: int) -> Tensor:
        open_entries, k_left = in_full(z, allowed, k, most)
        settings = (samples, noise, same_noise, generator)
        return cast("Tensor", _Perturbed.apply(z, open_entries, k_left.squeeze(-1), *settings))  # pyright: ignore[reportUnknownMemberType]

    return relaxed_weights(name, weights_of, scores, k, temperature, dim, mask, largest, hard)


def check_samples(name: str, samples: int) -> None:
    """Raise unless ``samples`` is an integer of at least 2."""
    check_integer(name, "samples", samples, 2)


def _selections(
    z: Tensor,
    open_entries: Tensor,
    k: Tensor,
    samples: int,
    noise: Noise,
    same_noise: bool,
    generator: torch.Generator | None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """The hard selections (s, …, n) of the open entries and their noise, a few samples at a time."""
    draw = normal if noise == "normal" else gumbel
    # At once, for what a generator gives depends on the sizes that it is asked for.
    one = draw((samples, z.shape[-1]), z.device, generator).to(z.dtype) if same_noise else None
    for part in chunks(samples, z.numel(), _AT_ONCE):
        if one is not None:
            drawn = one[part].reshape(-1, *[1] * (z.dim() - 1), z.shape[-1])
        else:
            drawn = draw((part.stop - part.start, *z.shape), z.device, generator).to(z.dtype)
        yield hard_topk(torch.where(open_entries, z + drawn, -math.inf), k), drawn


class _Perturbed(torch.autograd.Function):
    """Scores in units of τ, which entries are open (…, n), budgets (…), settings → weights."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        open_entries: Tensor,
        k: Tensor,
        samples: int,
        noise: Noise,
        same_noise: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        state = state_of(generator, z.device)
        total = torch.zeros_like(z)
        for chosen, _ in _selections(z, open_entries, k, samples, noise, same_noise, generator):
            total += chosen.sum(0)
        # A NaN score makes its whole row NaN, as softmax does.
        y = torch.where(z.isnan().any(-1, keepdim=True), math.nan, total / samples)
        ctx.save_for_backward(z, open_entries, k, y)
        ctx.samples, ctx.noise, ctx.same_noise, ctx.state = samples, noise, same_noise, state
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        z, open_entries, k, y = ctx.saved_tensors
        with torch.no_grad():
            grad = torch.where(open_entries, grads[0], 0)
            mean = grad.sum(-1, keepdim=True) / open_entries.sum(-1, keepdim=True).clamp_min(1)
            grad = torch.where(open_entries, grad - mean, 0)
            total = torch.zeros_like(z)
            again = replay(ctx.state, z.device)
            for chosen, drawn in _selections(
                z, open_entries, k, ctx.samples, ctx.noise, ctx.same_noise, again
            ):
                score = drawn if ctx.noise == "normal" else -torch.expm1(-drawn)
                along = (score * grad).sum(-1, keepdim=True)
                total += ((chosen - y) * along).sum(0)
            total = torch.where(open_entries, total, 0) / (ctx.samples - 1)
        total = cast("Tensor", _OnceDifferentiable.apply(total, z, grads[0]))  # pyright: ignore[reportUnknownMemberType]
        return total, *[None] * 6


class _OnceDifferentiable(torch.autograd.Function):
    """The first of its arguments, as a function of the others whose derivative is an error and not zero."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *of: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError("perturbed_topk: there is no second derivative")


SPEC = register(
    Relaxation(
        name="perturbed",
        weights=perturbed_topk,
        stochastic=True,
        max_n=100_000,
        example_options=({"noise": "gumbel"}, {"same_noise": True}),
        reference="Berthet et al. (2020); Cordonnier et al. (2021)",
    )
)
