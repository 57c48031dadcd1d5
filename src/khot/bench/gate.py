"""The correctness gate: no speed is reported unless the result is right.

A side whose map has a truth must agree with it, values and (where the map is smooth) gradient; any
other must give finite numbers of the right shape. How far its sum is from what its kind of result promises
is recorded, because a relaxation that has not converged is fast for the wrong reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from khot.bench.calls import NoGradient, prepare, result_shape, upstream
from khot.bench.cases import Case
from khot.bench.sides import Side
from khot.bench.truths import TRUTHS

__all__ = ["BOUNDS", "Bound", "Gate", "check", "first_line"]


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


@dataclass(frozen=True)
class Gate:
    """What the gate found.

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


def check(side: Side, case: Case, answer: Tensor | None = None, *, gradient: bool = True) -> Gate:
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
            return Gate(False, problem)
        recorded, returned = plain, None
        if gradient:
            try:
                recorded, returned = prepare(side, x, case.k, "forward+backward")()
            except NoGradient:
                differentiable = False
    except Exception as error:
        return Gate(False, f"{type(error).__name__}: {first_line(error)}")
    recorded = recorded.detach()
    # The call without a graph and the one with it may take different ways, and both are timed.
    problem = _problem(recorded, result_shape(side, x, case.k))
    if returned is not None and not bool(torch.isfinite(returned).all()):
        problem = "the gradient is not finite"
    if problem:
        return Gate(False, problem)

    sum_error = _sum_error(side, case, torch.stack([plain, recorded]))
    truth = TRUTHS.get(side.map)
    if truth is None:
        return Gate(True, "", sum_error, differentiable=differentiable)
    if answer is None:
        answer = truth.weights(before.double(), case.k)
    value_error = max(_distance(plain, answer), _distance(recorded, answer))
    gradient_error = None
    if returned is not None and truth.gradient is not None:
        expected = truth.gradient(answer, upstream(side, x, case.k).double())
        scale = float(expected.abs().max())
        gradient_error = _distance(returned, expected) / scale if scale else _distance(returned, expected)
    reason = _excess(BOUNDS[case.dtype], value_error, sum_error, gradient_error)
    return Gate(not reason, reason, sum_error, value_error, gradient_error, differentiable)


def first_line(error: BaseException) -> str:
    """What an error says, cut to what a table can hold."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else ""


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
