"""Checks at the extremes of sizes, scales, infinities and dtypes: finite input must never give NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from khot.relaxations import hard_topk
from khot.relaxations.registry import Relaxation
from khot.testing.requirements import draw, require, require_close, scores, sum_tolerance

__all__ = ["CHECKS"]

Options = Mapping[str, Any]
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_scales(spec: Relaxation, options: Options) -> None:
    """Huge, tiny, shifted, tied and heavy-tailed scores, in every dtype: finite weights, right sum."""
    for dtype in DTYPES:
        for what, x in _hostile(dtype):
            for k in (1, 3, x.shape[-1] - 1):
                leaf = x.clone().requires_grad_()
                y = draw(spec, leaf, k, options)
                where = f"{what}, k = {k}, {dtype}"
                require(y.dtype == dtype, f"{where}: the result is {y.dtype}")
                require(bool(y.isfinite().all()), f"{where}: not finite")
                if spec.sums_to_k:
                    worst = (y.double().sum(-1) - k).abs().max().item()
                    allowed = sum_tolerance(dtype, x.shape[-1], k)
                    require(worst <= allowed, f"{where}: |Σy − k| = {worst:.3g}, allowed {allowed:.3g}")
                (grad,) = torch.autograd.grad(y, leaf, torch.ones_like(y).cumsum(-1))
                require(bool(grad.isfinite().all()), f"{where}: the gradient is not finite")


def check_temperature_range(spec: Relaxation, options: Options) -> None:
    """The smallest and largest temperatures: finite weights and gradients; hard weights at the smallest."""
    for dtype in (torch.float32, torch.float64):
        info = torch.finfo(dtype)
        x = (3 * scores(4, 12)).to(dtype).requires_grad_()
        for temperature in (info.tiny, info.max):
            tau = torch.tensor(temperature, dtype=dtype, requires_grad=True)
            y = draw(spec, x, 3, options, temperature=tau)
            where = f"temperature = {temperature:.3g}, {dtype}"
            require(bool(y.isfinite().all()), f"{where}: not finite")
            if temperature == info.tiny:
                expected = hard_topk(y.detach() if spec.stochastic else x.detach(), 3)
                require_close(y.detach(), expected, 1e-6, where)
            for grad in torch.autograd.grad(y, (x, tau), scores(4, 12).to(dtype)):
                require(bool(grad.isfinite().all()), f"{where}: a gradient is not finite")


def check_infinities(spec: Relaxation, options: Options) -> None:
    """+inf is always selected; more than k of them share k; −inf is never selected."""
    inf = math.inf
    x = torch.tensor([[inf, 1.0, 0.5, 0.0], [inf, inf, inf, 0.0], [-inf, 2.0, 1.0, 0.0]], dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    y = draw(spec, leaf, 2, options)
    require(bool(y.isfinite().all()), "infinite scores give weights that are not finite")
    require(y[0, 0] == 1, f"one +inf has weight {y[0, 0]:.17g}, not 1")
    require_close(y[0, 1:].sum(), torch.ones((), dtype=y.dtype), 1e-9, "the rest beside one +inf")
    if spec.ties_share and not spec.stochastic:
        require_close(y[1, :3], torch.full((3,), 2 / 3, dtype=y.dtype), 1e-12, "three +inf and k = 2")
    require(y[1, 3] == 0, "a finite score has weight beside three +inf and k = 2")
    require(y[2, 0] == 0, "−inf has weight")
    (grad,) = torch.autograd.grad(y, leaf, scores(3, 4))
    require(bool(grad.isfinite().all()), "infinite scores give a gradient that is not finite")
    require(not grad[x.isinf()].any(), "an infinite score, which no step can move, has a gradient")


def check_largest_row(spec: Relaxation, options: Options) -> None:
    """The longest declared row, float32: the weights have the right sum, also for k near n if declared."""
    n = spec.max_n
    x = scores(n, dtype=torch.float32)
    for k in (8, n // 2, n - 1) if spec.max_k is None else (spec.max_k,):
        y = draw(spec, x, k, options)
        if spec.sums_to_k:
            worst = abs(y.double().sum().item() - k)
            require(worst <= sum_tolerance(y.dtype, n, k), f"n = {n}, k = {k}: |Σy − k| = {worst:.3g}")


def check_small_weights(spec: Relaxation, options: Options) -> None:
    """Small budgets of long rows at high temperatures: the sum is right to relative accuracy."""
    if not spec.sums_to_k:
        return
    n = min(spec.max_n, 4000)
    steps = torch.where(torch.arange(n) == 7, 0.5, 1e-6 * scores(n))  # one large weight and many small ones
    for dtype in (torch.float32, torch.float64):
        for what, x, temperature in (
            ("scores", scores(n), 1e2),
            ("scores", scores(n), 1e6),
            ("one score above many", steps, 1.0),
        ):
            for k in (1e-6, 0.5, 1.0, 2.0) if spec.real_k else (1, 2):
                y = draw(spec, x.to(dtype), k, options, temperature=temperature)
                worst = abs(y.double().sum().item() - k)
                where = f"{what}, n = {n}, k = {k}, temperature = {temperature:g}, {dtype}"
                require(worst <= sum_tolerance(dtype, n, k), f"{where}: |Σy − k| = {worst:.3g}")


def check_half_gradient(spec: Relaxation, options: Options) -> None:
    """Gradients in half types agree with float64 to their own resolution, even where y rounds to 1."""
    for dtype in (torch.float16, torch.bfloat16):
        x = (8 * scores(4, 12)).to(dtype)
        expected, actual = (
            torch.autograd.grad(draw(spec, leaf, 3, options)[:, 0].sum(), leaf)[0]
            for leaf in (x.double().requires_grad_(), x.clone().requires_grad_())
        )
        allowed = 4 * torch.finfo(dtype).eps * max(expected.abs().max().item(), 1e-2)
        require_close(actual, expected.to(dtype), allowed, f"gradient in {dtype}")


def check_without_grad(spec: Relaxation, options: Options) -> None:
    """The values are the same with and without gradients."""
    x = scores(3, 7)
    with torch.no_grad():
        plain = draw(spec, x, 2, options)
    require(not plain.requires_grad, "a result without gradients requires one")
    tracked = draw(spec, x.clone().requires_grad_(), 2, options)
    require_close(plain, tracked.detach(), 0.0, "values with gradients off")


def _hostile(dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    x = scores(3, 20)
    heavy = torch.tan(1.5 * x.clamp(-1, 1))
    large = min(1e30, torch.finfo(dtype).max / 8)
    yield "scores", x.to(dtype)
    yield "scores × 1e-3", (x * 1e-3).to(dtype)
    yield "scores × 1e4", (x * 1e4).clamp(-large, large).to(dtype)
    yield f"scores × {large:.0e}", (x * large / 4).to(dtype)
    yield "scores + 1e4", (x + 1e4).to(dtype)
    yield "heavy tails", (heavy * 50).to(dtype)
    yield "ties", torch.zeros(3, 20, dtype=dtype)
    yield "ties at the largest number", torch.full((3, 20), torch.finfo(dtype).max, dtype=dtype)
    yield "two levels", (x > 0).to(dtype) * 30
    yield "both ends of the range", torch.where(x > 0.5, 1.0, -1.0).to(dtype) * torch.finfo(dtype).max


CHECKS = [
    check_scales,
    check_temperature_range,
    check_infinities,
    check_largest_row,
    check_small_weights,
    check_half_gradient,
    check_without_grad,
]
