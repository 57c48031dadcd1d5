"""Checks of derivatives: reverse, forward, batched, second order, and ``torch.func``."""

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
    """Excluded entries have gradient 0, and do not disturb the others, in every argument."""
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
    """What comes from scores with a gradient has a graph, also where it cannot change: the gradient is 0."""
    for n, k in ((5, 0), (5, 5), (1, 1), (1, 0)):
        for hard in (False, True):
            x = scores(3, n).requires_grad_()
            y = draw(spec, x, k, options, hard=hard)
            where = f"n = {n}, k = {k}, hard={hard}"
            require(y.requires_grad, f"{where}: no graph, though the scores have one")
            (grad,) = torch.autograd.grad(y, x, scores(3, n, seed=1))
            require(not grad.any(), f"{where}: weights that cannot change have a gradient")


def check_shift_gradient(spec: Relaxation, options: Options) -> None:
    """What no shift can change has a gradient that sums to 0."""
    if spec.shift_invariant and not spec.stochastic:
        x = scores(3, 8).requires_grad_()
        (grad,) = torch.autograd.grad((draw(spec, x, 3, options) * scores(3, 8, seed=1)).sum(), x)
        require(grad.sum(-1).abs().max() <= 1e-9, "the gradient does not sum to 0 along the row")


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
    check_torch_func,
]
