"""What a fuzzed call may do: refuse, naming the argument, or give what the contract promises."""

import os
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, seed, settings
from torch import Tensor

from khot.testing.requirements import sum_tolerance
from strategies.fuzzed_problems import INF, Problem

CASES = int(os.environ.get("KHOT_FUZZ_CASES", "10000"))
SEED = int(os.environ.get("KHOT_FUZZ_SEED", "1"))
REFUSALS = (TypeError, ValueError, IndexError)


def cases(share: float) -> Callable[[Any], Any]:
    """Gives a test this share of all cases: the same ones each time, or those of another seed."""

    def decorate(test: Any) -> Any:
        count = max(1, round(share * CASES))
        test = settings(max_examples=count, derandomize=SEED == 1, suppress_health_check=list(HealthCheck))(
            test
        )
        return test if SEED == 1 else seed(SEED)(test)

    return decorate


def refusal(call: Callable[..., Any], *arguments: Any, names: list[str], **named: Any) -> tuple[Any, str]:
    """The result and an empty message, or None and the message of a refusal, which names one of ``names``."""
    try:
        return call(*arguments, **named), ""
    except REFUSALS as error:
        message = str(error)
        head, colon, _ = message.partition(": ")
        clear = (
            colon and head.replace("_", "").replace(".", "").isalnum() and any(n in message for n in names)
        )
        if not clear:
            raise AssertionError(
                f"a refusal that does not say what is wrong: {type(error).__name__}: {message}"
            ) from error
        return None, message


def called(call: Callable[..., Any], problem: Problem, **more: Any) -> Any:
    """The result of a right problem; None if it is wrong and was refused, as it must be."""
    named = {**problem.arguments, **more}
    result, message = refusal(call, names=list(named), **named)
    if problem.wrong is None:
        assert not message, f"refused: {message}"
        return result
    assert message, f"{problem.wrong} = {named[problem.wrong]!r} was accepted"
    assert problem.wrong in message, f"{problem.wrong} is wrong, but the message is: {message}"
    return None


def check_weights(problem: Problem, y: Tensor, *, bounded: bool = True, sums_to_k: bool = True) -> None:
    """Weights of rows without NaN: in range, 0 where excluded, and with the right sum."""
    x = problem.scores
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    rows, weights = problem.rows(), y.detach().double().movedim(problem.dim, -1)
    known = ~rows.isnan().any(-1)
    rows, weights, budgets = rows[known], weights[known], problem.budgets[known]
    assert not weights.isnan().any(), "NaN without a NaN in the row"
    assert (weights >= 0).all()
    assert not (bounded and (weights > 1).any())
    assert not weights[rows == -INF].any(), "weight where excluded"
    if sums_to_k:
        wanted = torch.minimum(budgets, (rows > -INF).sum(-1))
        allowed = torch.tensor([sum_tolerance(y.dtype, rows.shape[-1], float(k)) for k in wanted])
        assert ((weights.sum(-1) - wanted).abs() <= allowed).all(), (weights.sum(-1), wanted)


def check_gradient(problem: Problem, result: Tensor) -> None:
    """The gradient in the scores: finite where the rows have no NaN, and slopes of 1/τ are in range."""
    x = problem.scores
    if not (x.requires_grad and result.requires_grad) or not result.numel():
        return
    direction = torch.randn(result.shape, generator=problem.generator(), dtype=torch.float64)
    (grad,) = torch.autograd.grad(result, x, direction.sign().to(result.dtype))
    assert grad.shape == x.shape
    rows = problem.rows()
    grad = grad.movedim(problem.dim, -1)[~rows.isnan().any(-1)]
    assert not grad.isnan().any(), "a gradient that is NaN"
    if 1e4 / problem.least < torch.finfo(x.dtype).max:
        assert grad.isfinite().all(), "a gradient that is not finite"


def check_the_same_of_a_copy(call: Callable[..., Any], problem: Problem, result: Tensor, **more: Any) -> None:
    """The memory of the scores makes no difference but for rounding."""
    copy = {
        **problem.arguments,
        **more,
        "scores": problem.scores.detach().clone(memory_format=torch.contiguous_format),
    }
    again = call(**copy)
    tolerance = (
        8
        * torch.finfo(result.dtype).eps
        * max(1.0, float(problem.budgets.max()) if problem.budgets.numel() else 1.0)
    )
    same = (again - result.detach()).abs() <= max(tolerance, 1e-10)
    assert (same | (again == result) | (again.isnan() & result.isnan())).all(), (
        "a contiguous copy has another result"
    )
