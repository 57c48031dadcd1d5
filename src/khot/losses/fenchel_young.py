"""Fenchel–Young losses of the threshold family.

    L(x, t) = max_π [⟨x, π⟩ − τ Σ ω(πᵢ)] − [⟨x, t⟩ − τ Σ ω(tᵢ)],    π ∈ [0, 1]ⁿ, Σπ = Σt = k,

with ω the potential of the gate (ω′ = F⁻¹). The loss is convex in x, not negative, and 0 exactly if
y(x) = t. Its gradient is y(x) − t, so no derivative of the operator is needed. For the sigmoid gate, two
classes and k = 1 it is the logistic loss. Cost: one evaluation of the operator. Reference: Blondel, Martins &
Niculae (2020), Learning with Fenchel–Young Losses.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from khot.kernels.availability import has_values
from khot.losses._reduction import Reduction, check_reduction, reduced
from khot.relaxations._arguments import (
    Number,
    check_device,
    check_mask,
    check_temperature,
    compute_dtype,
    per_row,
    position,
)
from khot.relaxations._linearised import motion, must_linearise
from khot.relaxations._plain_arguments import check_choice, check_dim, check_real
from khot.relaxations._temperature import within_range
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.threshold._gates import LAPLACE, LOGISTIC, NORMAL, Gate
from khot.relaxations.threshold.sparse import sparse_gate

__all__ = ["FenchelYoungLoss", "fenchel_young_loss"]

_FAR = 2.0**64
_GATES: dict[str, Gate] = {"sigmoid": LOGISTIC, "laplace": LAPLACE, "normal": NORMAL}


def fenchel_young_loss(
    scores: Tensor,
    target: Tensor,
    *,
    method: str | Relaxation = "sigmoid",
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
    **options: Any,
) -> Tensor:
    r"""How far scores are from selecting a target; the gradient in the scores is :math:`y(x) - t`.

    .. math:: L(x, t) = \max_{\pi \in [0,1]^n,\, \sum\pi = k}
              \big[\langle x, \pi\rangle - \tau\Omega(\pi)\big] - \langle x, t\rangle + \tau \Omega(t),
              \qquad k = \textstyle\sum_i t_i

    The loss is convex in the scores, not negative, and 0 if :func:`khot.topk` of the scores equals the
    target. Cost: one evaluation of the operator, forward and backward together.

    Args:
        scores: a floating-point tensor of any shape. Half types are computed in float32.
        target: weights in [0, 1] of the shape of ``scores``: a multi-hot label, or soft weights. Their sum
            along ``dim`` is the budget k, which may differ between rows. It gets no gradient.
        method: ``"sigmoid"``, ``"laplace"``, ``"normal"`` or ``"sparse"`` (with ``norm=``).
        temperature: > 0, a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
        dim: the dimension of the classes.
        mask: boolean, broadcastable to ``scores``; entries with False take no part (their target must be 0).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.
        options: further options of the method.

    Returns:
        The loss: a scalar, or one per row with ``reduction="none"``.

    Example:
        >>> x = torch.tensor([2.0, 0.0, 1.0, -1.0], requires_grad=True)
        >>> target = torch.tensor([1.0, 1.0, 0.0, 0.0])
        >>> loss = fenchel_young_loss(x, target)
        >>> gradient, = torch.autograd.grad(loss, x)
        >>> torch.allclose(gradient, topk(x, 2) - target)
        True

    Reference: Blondel, Martins & Niculae (2020), Learning with Fenchel–Young Losses.
    """
    name = "fenchel_young_loss"
    check_reduction(name, reduction)
    gate = _gate(name, method, options)
    last = position(name, scores, dim)
    check_temperature(name, temperature)
    target = _checked(name, scores, target, mask)
    x = scores.to(compute_dtype(scores))
    k = target.sum(last).clamp(max=x.shape[last])  # which rounding may exceed
    tau = per_row(name, "temperature", x, within_range(temperature, x.dtype), last).movedim(-1, last)
    y = topk(x, k, method, temperature=temperature, dim=last, mask=mask, **options)
    return reduced(_envelope(x, y, target, tau, gate, last), reduction).to(scores.dtype)


class FenchelYoungLoss(nn.Module):
    """:func:`khot.losses.fenchel_young_loss` as a module.

    Args:
        method: ``"sigmoid"``, ``"laplace"``, ``"normal"`` or ``"sparse"`` (with ``norm=``).
        temperature: > 0.
        dim: the dimension of the classes.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over rows.
        options: further options of the method.

    Example:
        >>> criterion = FenchelYoungLoss(method="sparse")
        >>> round(criterion(torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])).item(), 4)
        0.0
    """

    def __init__(
        self,
        *,
        method: str | Relaxation = "sigmoid",
        temperature: float = 1.0,
        dim: int = -1,
        reduction: Reduction = "mean",
        **options: Any,
    ) -> None:
        super().__init__()
        check_reduction("FenchelYoungLoss", reduction)
        check_temperature("FenchelYoungLoss", temperature)
        check_dim("FenchelYoungLoss", dim)
        _gate("FenchelYoungLoss", method, options)
        self.method = method
        self.temperature = temperature
        self.dim = dim
        self.reduction: Reduction = reduction
        self.options = options

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """The loss of ``scores`` for the target weights ``target``; see :func:`fenchel_young_loss`."""
        return fenchel_young_loss(
            scores,
            target,
            method=self.method,
            temperature=self.temperature,
            dim=self.dim,
            mask=mask,
            reduction=self.reduction,
            **self.options,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return (
            f"method={_name_of(self.method)!r}, temperature={self.temperature:g}, dim={self.dim}, "
            f"reduction={self.reduction!r}{options}"
        )


def _envelope(x: Tensor, y: Tensor, target: Tensor, temperature: Tensor, gate: Gate, dim: int) -> Tensor:
    if must_linearise():
        still = x.detach(), y.detach(), target, temperature.detach()
        tangent = _tangent(*still, gate, dim, motion(x), motion(temperature))
        return _Envelope.forward(*still, gate, dim) + tangent
    function = _Envelope if torch.compiler.is_compiling() else _EnvelopeForwardMode
    return cast("Tensor", function.apply(x, y, target, temperature, gate, dim))  # pyright: ignore[reportUnknownMemberType]


class _Envelope(torch.autograd.Function):
    """⟨x, y − t⟩ + τ Σ (ω(t) − ω(y)), with the gradient of a maximum: that in y is 0.

    y is an input, so that a derivative of the gradient y − t goes on through it.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, target: Tensor, temperature: Tensor, gate: Gate, dim: int) -> Tensor:
        gap = _potential_gap(gate, y, target, dim)
        far, near = _products(x, y - target, dim)
        of_far, of_near = _products(temperature, gap.unsqueeze(dim), dim)
        return (near + of_near) + (far + of_far) * _FAR  # in this order no ∞ − ∞

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, y, target, temperature, ctx.gate, ctx.dim = inputs
        ctx.save_for_backward(x, y, target, temperature)
        ctx.save_for_forward(x, y, target, temperature)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, y, target, temperature = ctx.saved_tensors
        grad = grads[0].unsqueeze(ctx.dim)
        grad_temperature = None
        if ctx.needs_input_grad[3]:
            grad_temperature = grad * _by_temperature(x, y, target, temperature, ctx.gate, ctx.dim)
        return grad * (y - target), None, None, grad_temperature, None, None


class _EnvelopeForwardMode(_Envelope):
    """The same with forward-mode derivatives, which Dynamo does not accept."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Tensor:
        dx, _, _, dt, _, _ = cast("tuple[Tensor | None, ...]", grad_inputs)
        x, y, target, temperature = ctx.saved_tensors
        return _tangent(x, y, target, temperature, ctx.gate, ctx.dim, dx, dt)


def _tangent(
    x: Tensor,
    y: Tensor,
    target: Tensor,
    temperature: Tensor,
    gate: Gate,
    dim: int,
    dx: Tensor | None,
    dt: Tensor | None,
) -> Tensor:
    """How the loss moves with the scores and the temperature."""
    tangent = torch.zeros_like(y).sum(dim)
    if dx is not None:
        tangent = tangent + (dx * (y - target)).sum(dim)
    if dt is not None:
        slope = _by_temperature(x, y, target, temperature, gate, dim)
        tangent = tangent + (dt * slope).squeeze(dim)
    return tangent


def _products(x: Tensor, factors: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Σ x·factor without a NaN, in two parts: of the far x, divided by `_FAR`, and of the others."""
    far = x.abs() > 1e30
    products = torch.where(factors == 0, 0, torch.where(far, x / _FAR, x) * factors)
    return torch.where(far, products, 0).sum(dim), torch.where(far, 0, products).sum(dim)


def _by_temperature(
    x: Tensor, y: Tensor, target: Tensor, temperature: Tensor, gate: Gate, dim: int
) -> Tensor:
    """The derivative in the temperature: Σ (ω(t) − ω(y)).

    Its own derivative in y is −ω′(y) = −(x + c)/τ: written without ω′, which may be infinite, and without c,
    which drops out since Σy = k.
    """
    gap = _potential_gap(gate, y, target, dim).unsqueeze(dim)
    finite = torch.where(x.isfinite(), x, 0).detach()
    moved = (finite * (y - y.detach())).sum(dim, keepdim=True) / temperature.detach()
    return gap - moved


def _potential_gap(gate: Gate, y: Tensor, target: Tensor, dim: int) -> Tensor:
    return (gate.potential(target) - gate.potential(y.detach())).sum(dim)


def _gate(name: str, method: str | Relaxation, options: dict[str, Any]) -> Gate:
    chosen = _name_of(method)
    check_choice(name, "method", chosen, (*_GATES, "sparse"))
    checked_options(name, get(method, name), options)
    return _GATES[chosen] if chosen != "sparse" else sparse_gate(name, options.get("norm", 2.0))


def _name_of(method: str | Relaxation) -> str:
    return method.name if isinstance(method, Relaxation) else method


def _checked(name: str, scores: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """The target in the dtype of computation: its sum is the budget, and a half type would round that."""
    check_real(name, "target", target)
    if target.shape != scores.shape:
        raise ValueError(
            f"{name}: target must have the shape of scores, {tuple(scores.shape)}, "
            f"got {tuple(target.shape)}; class indices become weights by torch.nn.functional.one_hot"
        )
    check_device(name, scores, "target", target)
    if mask is not None:
        check_mask(name, scores, mask)
    target = target.detach().to(compute_dtype(scores))
    if has_values() and target.numel() and not target.is_meta:
        low, high = target.aminmax()
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"{name}: target must lie in [0, 1], got values in [{low.item():g}, {high.item():g}]"
            )
        if mask is not None and bool(((target != 0) & ~mask).any()):
            raise ValueError(f"{name}: target must be 0 where mask is False")
    return target
