"""Correctness comes first: no speed is reported unless the result is right.

A side whose map has a truth must agree with it, values and (where the map is smooth) gradient; any
other must give finite numbers of the right shape. How far its sum is from what its kind of result promises
is recorded, because a relaxation that has not converged is fast for the wrong reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from khot.compare.cost.calls import NoGradient, prepare, result_shape, upstream
from khot.compare.cost.case import Case
from khot.compare.cost.failure import first_line
from khot.compare.cost.side import Side
from khot.testing import truth

__all__ = ["BOUNDS", "Bound", "CorrectnessCheck", "check", "true_gradient", "true_weights"]


@dataclass(frozen=True)
class Bound:
    """How far a result may be from the truth.

    Args:
        value: the largest |y − truth|.
        sum: the largest |Σy − k| / k.
        gradient: the largest |grad − truth|, in units of the largest |truth|.
    """

    value: float
    sum: float
    gradient: float


BOUNDS: dict[str, Bound] = {
    "float64": Bound(1e-9, 1e-9, 1e-7),
    "float32": Bound(1e-5, 1e-5, 1e-3),
    "float16": Bound(1e-3, 1e-2, 1e-2),
    "bfloat16": Bound(8e-3, 2e-2, 5e-2),
}
"""One bound per dtype, the same for khot and for its peers."""


def _at_temperature_one(name: str, x: Any, k: int) -> Any:
    return truth.TRUTHS[name](x, k, 1.0)


_TRUTHS: dict[str, Callable[[Any, int], Any]] = {
    **{name: partial(_at_temperature_one, name) for name in truth.TRUTHS},
    "neuralsort": truth.neuralsort,
    "hard": truth.hard,
    "argsort": lambda x, k: truth.order(x),
}


@dataclass(frozen=True)
class CorrectnessCheck:
    """What was found.

    Args:
        passed: whether the side may be timed.
        reason: why not.
        sum_error: the largest relative distance of a row's sum from what the result promises.
        value_error: the largest distance from the truth, where there is one.
        gradient_error: likewise of the gradient, relative to the largest.
        differentiable: False if the result turned out to have no gradient.
    """

    passed: bool
    reason: str = ""
    sum_error: float | None = None
    value_error: float | None = None
    gradient_error: float | None = None
    differentiable: bool = True


def check(side: Side, case: Case, answer: Tensor | None = None, *, gradient: bool = True) -> CorrectnessCheck:
    """Pass or refuse a side at a case; whatever the side raises becomes the reason.

    Args:
        side: the function.
        case: its input.
        answer: the truth's weights at this case, if they are at hand already.
        gradient: whether to call backward; not where a probe has shown that it cannot.
    """
    x = case.make()
    before = x.clone()
    differentiable = True
    try:
        plain = prepare(side, x, case.k, "forward")()[0].detach()
        problem = _problem(plain, result_shape(side, x, case.k))
        if not torch.equal(x, before):
            problem = "it changes its input"
        if problem:
            return CorrectnessCheck(False, problem)
        recorded, returned = plain, None
        if gradient:
            try:
                recorded, returned = prepare(side, x, case.k, "forward+backward")()
            except NoGradient:
                differentiable = False
    except Exception as error:
        return CorrectnessCheck(False, f"{type(error).__name__}: {first_line(error)}")
    recorded = recorded.detach()
    # The call without a graph and the one with it may take different ways, and both are timed.
    problem = _problem(recorded, result_shape(side, x, case.k))
    if returned is not None and not bool(torch.isfinite(returned).all()):
        problem = "the gradient is not finite"
    if problem:
        return CorrectnessCheck(False, problem)

    sum_error = _sum_error(side, case, torch.stack([plain, recorded]))
    if answer is None:
        answer = true_weights(side.map, before, case.k)
    if answer is None:
        return CorrectnessCheck(True, "", sum_error, differentiable=differentiable)
    value_error = max(_distance(plain, answer), _distance(recorded, answer))
    gradient_error = None
    expected = true_gradient(side.map, answer, upstream(side, x, case.k))
    if returned is not None and expected is not None:
        scale = float(expected.abs().max())
        gradient_error = _distance(returned, expected) / scale if scale else _distance(returned, expected)
    reason = _excess(BOUNDS[case.dtype], value_error, sum_error, gradient_error)
    return CorrectnessCheck(not reason, reason, sum_error, value_error, gradient_error, differentiable)


def true_weights(name: str, x: Tensor, k: int) -> Tensor | None:
    """The result of a map at temperature 1 in float64; None if it has no truth."""
    return torch.as_tensor(_TRUTHS[name](x.double().numpy(), k)) if name in _TRUTHS else None


def true_gradient(name: str, y: Tensor, grad: Tensor) -> Tensor | None:
    """The gradient in the scores from the true result; None where there is no truth.

    A map with kinks has none: a correct float32 gradient may be anything in between at them.
    """
    if name not in truth.GRADIENTS:
        return None
    return torch.as_tensor(truth.GRADIENTS[name](y.double().numpy(), grad.double().numpy()))


def _problem(result: Tensor, expected: tuple[int, ...]) -> str:
    if tuple(result.shape) != expected:
        return f"shape {tuple(result.shape)} instead of {expected}"
    if not bool(torch.isfinite(result).all()):
        return "the result is not finite"
    return ""


def _sum_error(side: Side, case: Case, results: Tensor) -> float | None:
    if side.result in ("values", "order", "blends"):
        return None
    n = case.shape[-1]
    promised = {"weights": case.k, "distribution": 1, "ranks": n * (n + 1) / 2}[side.result]
    return float((results.double().sum(-1) - promised).abs().max()) / promised


def _distance(result: Tensor, expected: Tensor) -> float:
    return float((result.double() - expected).abs().max())


def _excess(bound: Bound, value: float, total: float | None, gradient: float | None) -> str:
    found = {"value": (value, bound.value), "sum": (total, bound.sum), "gradient": (gradient, bound.gradient)}
    return "; ".join(
        f"{name} error {error:.1e} exceeds {limit:.0e}"
        for name, (error, limit) in found.items()
        if error is not None and not error <= limit
    )
