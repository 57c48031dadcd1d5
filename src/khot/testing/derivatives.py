"""Checks of derivatives: reverse, forward and batched mode, second order, and ``torch.func``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from khot.relaxations.registry import Relaxation
from khot.testing.requirements import ContractError, draw, require, require_close, scores

__all__ = ["CHECKS"]

Options = Mapping[str, Any]


def check_first_order(spec: Relaxation, options: Options) -> None:
    """``gradcheck`` in reverse, forward and batched mode, in every differentiable argument."""
    if not spec.stochastic:
        _run(gradcheck, spec, options, check_forward_ad=True, check_batched_grad=True)


def check_second_order(spec: Relaxation, options: Options) -> None:
    """``gradgradcheck``, and forward over reverse, where the operator is smooth."""
    if spec.smooth == "C∞":
        _run(gradgradcheck, spec, options, check_fwd_over_rev=True)


def check_masked_gradient(spec: Relaxation, options: Options) -> None:
    """Excluded entries have gradient 0 and do not affect the gradients of others, in every argument."""
    x = scores(3, 6)
    x[1, 2] = -math.inf
    x[2, 0] = math.inf
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[0, 4] = False
    inputs = _arguments(spec, x)
    y = draw(spec, inputs[0], inputs[1] if spec.real_k else 2, options, temperature=inputs[-1], mask=mask)
    grads = torch.autograd.grad((y * scores(3, 6, seed=1)).sum(), inputs)
    require(all(bool(g.isfinite().all()) for g in grads), "a gradient is not finite")
    require(grads[0][0, 4] == 0 and grads[0][1, 2] == 0, "an excluded entry has a gradient")


def check_graph(spec: Relaxation, options: Options) -> None:
    """Results from scores with a gradient always have a graph; if they cannot change, the gradient is 0."""
    for n, k in ((5, 0), (5, 5), (1, 1), (1, 0)):
        for hard in (False, True):
            x = scores(3, n).requires_grad_()
            y = draw(spec, x, k, options, hard=hard)
            where = f"n = {n}, k = {k}, hard={hard}"
            require(y.requires_grad, f"{where}: no graph, though the scores have one")
            (grad,) = torch.autograd.grad(y, x, scores(3, n, seed=1))
            require(not grad.any(), f"{where}: weights that cannot change have a gradient")


def check_shift_gradient(spec: Relaxation, options: Options) -> None:
    """The gradient of a shift-invariant operator sums to 0."""
    if spec.shift_invariant and not spec.stochastic:
        x = scores(3, 8).requires_grad_()
        (grad,) = torch.autograd.grad((draw(spec, x, 3, options) * scores(3, 8, seed=1)).sum(), x)
        require(grad.sum(-1).abs().max() <= 1e-9, "the gradient does not sum to 0 along the row")


def check_outlier_gradient(spec: Relaxation, options: Options) -> None:
    """A score far from all others does not affect the derivatives, however far it is, in every dtype."""
    if spec.stochastic:
        return
    single, double = (torch.float32, 1e-4), (torch.float64, 1e-6)
    for sign in (1, -1):
        expected = _beside(sign * 1e6, spec, options, torch.float64)
        for distance, (dtype, tolerance) in ((1e6, single), (1e9, single), (1e9, double), (1e20, double)):
            grads = _beside(sign * distance, spec, options, dtype)
            for argument, actual, right in zip(("x", "temperature", "k"), grads, expected, strict=False):
                what = f"gradient in {argument} beside a score of {sign * distance:g}, {dtype}"
                require_close(actual.double(), right, tolerance * max(1, right.abs().max().item()), what)


def check_budget_gradient(spec: Relaxation, options: Options) -> None:
    """∂y/∂k sums to 1, because the weights sum to k; also at integer k, where weights are nearly hard."""
    if not (spec.real_k and spec.sums_to_k) or spec.stochastic or spec.smooth == "C⁰":
        return
    direction = scores(6, seed=1)
    for gap in (10.0, 100.0, 1e3, 1e6):
        row = (scores(6) + gap * torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 0.0])).to(torch.float32)
        products: list[Tensor] = []
        for dtype in (torch.float32, torch.float64):
            k = torch.tensor(2.0, dtype=dtype, requires_grad=True)
            y = draw(spec, row.to(dtype), k, options)
            (total,) = torch.autograd.grad(y, k, torch.ones_like(y), retain_graph=True)
            require_close(total, torch.ones_like(total), 1e-5, f"gap {gap:g}: Σ∂y/∂k, {dtype}")
            products.append(torch.autograd.grad(y, k, direction.to(dtype))[0].double())
        require_close(products[0], products[1], 1e-4, f"gap {gap:g}: ∂y/∂k in float32 against float64")


def check_torch_func(spec: Relaxation, options: Options) -> None:
    """``vmap``, ``jacrev``, ``jacfwd`` and ``hessian`` agree with eager autograd."""
    if spec.stochastic:
        return
    x = scores(3, 6)

    def weights(row: Tensor) -> Tensor:
        return spec.weights(row, 2, **options)

    require_close(torch.func.vmap(weights)(x), weights(x), 1e-12, "vmap")
    eager: Tensor = torch.autograd.functional.jacobian(weights, x[0])  # pyright: ignore
    require_close(torch.func.jacrev(weights)(x[0]), eager, 1e-10, "jacrev")
    require_close(torch.func.jacfwd(weights)(x[0]), eager, 1e-10, "jacfwd")
    require_close(torch.func.vmap(torch.func.jacrev(weights))(x)[0], eager, 1e-10, "vmap of jacrev")
    if spec.smooth == "C∞":

        def cost(row: Tensor) -> Tensor:
            return weights(row).pow(3).sum()

        expected: Tensor = torch.autograd.functional.hessian(cost, x[0])  # pyright: ignore
        require_close(torch.func.hessian(cost)(x[0]), expected, 1e-9, "hessian")


def _beside(outlier: float, spec: Relaxation, options: Options, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Gradients in the scores, the temperature and, if it is real, k, of a row with an outlier."""
    x = torch.tensor([1.0, 2.0, outlier, 3.0, 0.5], dtype=dtype, requires_grad=True)
    temperature = torch.tensor(0.7, dtype=dtype, requires_grad=True)
    k = torch.tensor(2.0, dtype=dtype, requires_grad=True)
    y = draw(spec, x, k if spec.real_k else 2, options, temperature=temperature)
    leaves = (x, temperature, k) if spec.real_k else (x, temperature)
    cotangent = torch.tensor([-1.0, 2.0, 1.0, 0.5, 3.0], dtype=dtype)
    return torch.autograd.grad(y, leaves, cotangent)


def _arguments(spec: Relaxation, x: Tensor) -> tuple[Tensor, ...]:
    """Leaves with gradients: x, then k if it is real, then the temperature."""
    k = torch.tensor([1.0, 2.5, 4.25], dtype=torch.float64)
    temperature = torch.tensor([1.0, 0.7, 2.0], dtype=torch.float64)
    leaves = (x, k, temperature) if spec.real_k else (x, temperature)
    return tuple(leaf.clone().requires_grad_() for leaf in leaves)


def _run(check: Callable[..., bool], spec: Relaxation, options: Options, **settings: Any) -> None:
    def weights(x: Tensor, *rest: Tensor) -> Tensor:
        return spec.weights(x, rest[0] if spec.real_k else 2, temperature=rest[-1], **options)

    try:
        check(weights, _arguments(spec, scores(3, 6)), **settings)
    except GradcheckError as error:
        raise ContractError(str(error)) from error


CHECKS = [
    check_first_order,
    check_second_order,
    check_masked_gradient,
    check_graph,
    check_shift_gradient,
    check_outlier_gradient,
    check_budget_gradient,
    check_torch_func,
]
