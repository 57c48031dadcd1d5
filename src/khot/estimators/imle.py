r"""Implicit maximum likelihood: the difference of two selections under the same noise.

With z(θ) = topk(θ + G) and g = ∇f(z), a step against g changes the selection, and

    (z(θ) − z(θ − λg))/λ

is a finite difference of the marginals along g. With a small λ it is nearly unbiased for the target of
straight-through, but it is rarely nonzero, and then large. The adaptive variant adjusts λ so that the
gradient has a chosen number of nonzero entries.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable  # pyright: ignore[reportUnknownVariableType]

from khot.estimators._arguments import check_not_mapped, rows_of
from khot.estimators.registry import register
from khot.kernels.availability import inside_a_transform
from khot.relaxations._noise import gumbel
from khot.relaxations._plain_arguments import check_switch, is_number
from khot.relaxations.hard import hard_topk

__all__ = ["AdaptiveStep", "adaptive_imle", "imle"]


class AdaptiveStep(nn.Module):
    r"""The step size of :func:`adaptive_imle`; every backward pass adjusts it.

    .. math:: \lambda = \alpha\, \frac{\lVert\theta + G\rVert}{\lVert g\rVert}, \qquad
        \alpha \leftarrow \alpha + \eta\, \operatorname{sign}(c - \text{nonzero entries})

    The norms are per row, of scores minus their mean, since a constant changes nothing. It is a module, so
    that a layer that holds it, such as ``khot.nn.SampledTopK``, saves α with its state. α keeps full
    precision whatever dtype the layer is cast to.

    Args:
        alpha: α, the initial step in units of the scores.
        wanted: c, how many entries of a row's gradient should be nonzero, on average.
        rate: η, the change of α in one backward pass.

    Example:
        >>> step = AdaptiveStep()
        >>> scores = torch.randn(8, 20, requires_grad=True)
        >>> (adaptive_imle(scores, 5, step=step) * torch.randn(8, 20)).sum().backward()
        >>> step.alpha < 1
        True
    """

    def __init__(self, alpha: float = 1.0, wanted: float = 2.0, rate: float = 1e-3) -> None:
        super().__init__()
        for argument, value in (("alpha", alpha), ("wanted", wanted), ("rate", rate)):
            _check_positive("AdaptiveStep", argument, value)
        self.alpha, self.wanted, self.rate = alpha, wanted, rate

    def correct(self, changed: float) -> None:
        """Adjust α after a gradient with ``changed`` nonzero entries, on average over rows."""
        towards = self.rate if changed < self.wanted else -self.rate
        self.alpha = max(self.alpha + towards, self.rate)

    def get_extra_state(self) -> Tensor:
        """α as a tensor, which every checkpoint format can hold."""
        return torch.tensor(self.alpha, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Load α from a saved state."""
        self.alpha = float(state)

    def extra_repr(self) -> str:
        """Show the numbers."""
        return f"alpha={self.alpha:.6g}, wanted={self.wanted}, rate={self.rate}"


@register(design="plackett_luce")
def imle(
    scores: Tensor,
    k: float,
    *,
    step: float = 1.0,
    symmetric: bool = False,
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""Draw ``k`` of n by perturbed scores, with the gradient of implicit maximum likelihood.

    .. math:: x = z(\theta), \quad
        \partial f \approx \frac{z(\theta) - z(\theta - \lambda \nabla f(x))}\lambda, \quad
        z(\theta) = \operatorname{topk}(\theta + G)

    with the same Gumbel noise G in both terms. The sample is Plackett–Luce. Cost: O(n), one top-k forward and
    one backward (two if ``symmetric``).

    Args:
        scores: logits θ, a floating-point tensor of any shape; −inf is never drawn, +inf always.
        k: how many to draw.
        step: λ > 0. It multiplies the gradient of the loss: if you scale the loss down, scale λ up.
        symmetric: use the symmetric difference, (z(θ + λ∇f) − z(θ − λ∇f))/(2λ).
        generator: source of randomness; by default torch's global generator.
        dim: the dimension along which to draw.
        mask: boolean, broadcastable to ``scores``; entries with False are never drawn.
        largest: False makes small scores likely instead of large ones.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, k ones along ``dim``. It is differentiable once.

    Example:
        >>> scores = torch.tensor([2.0, 0.0, 1.0, -1.0], requires_grad=True)
        >>> x = imle(scores, 2, step=100.0, generator=torch.Generator().manual_seed(0))
        >>> x.detach(), torch.autograd.grad(x[0] + x[2], scores)[0]  # less of the first, more of the second
        (tensor([1., 0., 0., 1.]), tensor([ 0.0100, -0.0100,  0.0000,  0.0000]))

    Reference: Niepert, Minervini & Franceschi (2021), Implicit MLE: Backpropagating Through Discrete
    Exponential Family Distributions.
    """
    _check_positive("imle", "step", step)
    check_switch("imle", "symmetric", symmetric)
    rows, k, last = rows_of("imle", scores, k, dim, mask, largest, generator)
    return _selected(rows, k, step, symmetric, generator).to(scores.dtype).movedim(-1, last)


@register(design="plackett_luce", fresh={"step": AdaptiveStep})
def adaptive_imle(
    scores: Tensor,
    k: float,
    *,
    step: AdaptiveStep | None = None,
    symmetric: bool = True,
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""Like :func:`imle`, with a step size that adapts to the scale of scores and gradients.

    .. math:: \lambda = \alpha\, \lVert\theta + G\rVert / \lVert\nabla f\rVert

    Cost: that of :func:`imle`.

    Args:
        scores: logits θ, a floating-point tensor of any shape; −inf is never drawn, +inf always.
        k: how many to draw.
        step: keeps α between calls; by default a new one for each call. ``get("adaptive_imle")`` and
            ``khot.nn.SampledTopK`` keep one for you.
        symmetric: use the symmetric difference, (z(θ + λ∇f) − z(θ − λ∇f))/(2λ).
        generator: source of randomness; by default torch's global generator.
        dim: the dimension along which to draw.
        mask: boolean, broadcastable to ``scores``; entries with False are never drawn.
        largest: False makes small scores likely instead of large ones.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, k ones along ``dim``. It is differentiable once.

    Example:
        >>> scores = torch.tensor([2.0, 0.0, 1.0, -1.0], requires_grad=True)
        >>> x = adaptive_imle(scores, 2)
        >>> x.sum().item(), x.requires_grad
        (2.0, True)

    Reference: Minervini, Franceschi & Niepert (2023), Adaptive Perturbation-Based Gradient Estimation for
    Discrete Latent Variable Models.
    """
    name = "adaptive_imle"
    if step is None:
        step = AdaptiveStep()
    if not isinstance(step, AdaptiveStep):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: step must be an AdaptiveStep or None, got {step!r}")
    check_switch(name, "symmetric", symmetric)
    rows, k, last = rows_of(name, scores, k, dim, mask, largest, generator)
    check_not_mapped(name, rows)  # its backward pass adjusts one step for all rows
    x = _selected(rows, k, step, symmetric, generator)
    return x.to(scores.dtype).movedim(-1, last)


def _check_positive(name: str, argument: str, value: float) -> None:
    if not is_number(value):
        raise TypeError(f"{name}: {argument} must be a number, got {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: {argument} must be positive and finite, got {value}")


def _selected(
    rows: Tensor, k: int, step: float | AdaptiveStep, symmetric: bool, generator: torch.Generator | None
) -> Tensor:
    noise = gumbel(tuple(rows.shape), rows.device, generator).to(rows.dtype)
    # What torch.func needs costs more than the selection.
    transformed = not torch.compiler.is_compiling() and inside_a_transform()
    kind = _DifferenceInTransforms if transformed else _Difference
    return cast("Tensor", kind.apply(rows + noise, k, step, symmetric))  # pyright: ignore[reportUnknownMemberType]


class _Difference(torch.autograd.Function):
    """(noisy scores, k, step, symmetric) → the selection, differentiated by a difference of two."""

    @staticmethod
    def forward(ctx: Any, noisy: Tensor, k: int, step: float | AdaptiveStep, symmetric: bool) -> Tensor:
        selected = hard_topk(noisy, k)
        ctx.save_for_backward(noisy, selected)
        ctx.k, ctx.step, ctx.symmetric = k, step, symmetric
        return selected

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        noisy, selected = ctx.saved_tensors
        finite = noisy.isfinite()
        grad = torch.where(finite, grads[0], 0)
        adaptive = isinstance(ctx.step, AdaptiveStep)
        length = ctx.step.alpha * _relative_size(noisy, finite, grad) if adaptive else ctx.step
        move = length * grad
        above = hard_topk(noisy + move, ctx.k) if ctx.symmetric else selected
        change = above - hard_topk(noisy - move, ctx.k)
        if adaptive:
            ctx.step.correct(float((change != 0).sum(-1, dtype=torch.float64).mean()))
        whole = 2 * length if ctx.symmetric else length
        return torch.where(change != 0, change / whole, 0), None, None, None


class _DifferenceInTransforms(_Difference):
    """The same in the form that ``torch.func`` accepts."""

    generate_vmap_rule = True

    @staticmethod
    def forward(noisy: Tensor, k: int, step: float | AdaptiveStep, symmetric: bool) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return hard_topk(noisy, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        noisy, ctx.k, ctx.step, ctx.symmetric = inputs
        ctx.save_for_backward(noisy, output)


def _relative_size(noisy: Tensor, finite: Tensor, grad: Tensor) -> Tensor:
    """‖θ + G‖/‖g‖ of each row (…, 1); 0 if there is no gradient."""
    inside = torch.where(finite, noisy, 0)
    mean = inside.sum(-1, keepdim=True) / finite.sum(-1, keepdim=True).clamp_min(1)
    size = _norm(torch.where(finite, inside - mean, 0))
    slope = _norm(grad)
    ratio = (size / slope).clamp_max(torch.finfo(noisy.dtype).max)
    return torch.where(slope > 0, ratio, 0)


def _norm(rows: Tensor) -> Tensor:
    return cast("Tensor", torch.linalg.vector_norm(rows, dim=-1, keepdim=True))  # pyright: ignore[reportUnknownMemberType]
