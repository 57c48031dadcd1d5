"""The traps found in implementations of soft top-k: one function each, an input and what must hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from khot_bench.adversarial.contestant import Contestant
from khot_bench.adversarial.demands import (
    NotPromised,
    Wrong,
    allowed_only,
    finite,
    finite_gradient,
    of_shape,
    same,
    whole_budget,
    within_range,
)

__all__ = ["TRAPS", "Trap", "sound"]

ROWS, N, K = 4, 64, 8
LONG = 1_000_000


@dataclass(frozen=True)
class Trap:
    """A trap.

    Args:
        name: the head of its column.
        about: the input and what must hold, in a sentence.
        check: raises what `demands` names if it does not hold.
    """

    name: str
    about: str
    check: Callable[[Contestant], None]


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal scores."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def sound(contestant: Contestant, x: Tensor, k: int, allowed: Tensor | None = None) -> Tensor:
    """What every result must be: of the shape of x, finite with a finite gradient, in range, of sum k."""
    y = contestant.weights(x, k)
    of_shape(y, tuple(x.shape))
    finite(y)
    tolerance = max(1e-4, torch.finfo(x.dtype).eps)
    within_range(contestant, y, tolerance)
    if allowed is None:
        whole_budget(contestant, y, k, tolerance=tolerance)
    elif not contestant.ranks:
        allowed_only(contestant, y, allowed)
        whole_budget(contestant, y, k, int(allowed[0].sum()), tolerance)
    finite_gradient(contestant, x, k)
    return y


def _times_10000(contestant: Contestant) -> None:
    order = torch.stack([torch.randperm(N, generator=torch.Generator().manual_seed(i)) for i in range(ROWS)])
    y = sound(contestant, 1e4 * order.float(), K)
    if contestant.soft_because:
        raise NotPromised(f"finite and of sum k, but not hard: {contestant.soft_because}")
    wanted = (order + 1.0) if contestant.ranks else (order >= N - K).float()
    same(y, wanted, 0.01 * float(wanted.max()), "from the hard selection")


def _plus_10000(contestant: Contestant) -> None:
    if not contestant.promises.shift_invariant:
        raise NotPromised("shift_invariant")
    x = (gaussian(ROWS, N) * 64).round() / 64  # so that float32 holds the shifted scores exactly
    y = sound(contestant, x + 1e4, K)
    same(y, contestant.weights(x, K), 1e-3 * (N if contestant.ranks else 1), "from the result without + 1e4")


def _masked(contestant: Contestant, count: int) -> None:
    allowed = torch.zeros(ROWS, N, dtype=torch.bool)
    for i, row in enumerate(allowed):
        row[torch.randperm(N, generator=torch.Generator().manual_seed(i))[:count]] = True
    x = gaussian(ROWS, N).masked_fill(~allowed, -math.inf)
    sound(contestant, x, K, allowed)


def _some_masked(contestant: Contestant) -> None:
    _masked(contestant, 48)


def _exactly_k_allowed(contestant: Contestant) -> None:
    _masked(contestant, K)


def _fewer_than_k_allowed(contestant: Contestant) -> None:
    _masked(contestant, K - 3)


def _k_is_n(contestant: Contestant) -> None:
    n = 16
    y = sound(contestant, gaussian(ROWS, n), n)
    if not contestant.ranks and contestant.promises.bounded:
        same(y, torch.ones(ROWS, n), 1e-4, "from 1 everywhere")


def _all_ties(contestant: Contestant) -> None:
    y = sound(contestant, torch.full((ROWS, N), 0.3), K)
    if contestant.ranks:
        same(y, torch.full((ROWS, N), (N + 1) / 2), 1e-2, "from the mean rank")
    elif contestant.promises.stochastic or not contestant.promises.ties_share:
        return  # then what every result must be is all that can be asked
    else:
        same(y, torch.full((ROWS, N), K / N), 1e-4, "from k/n each")


def _empty_batch(contestant: Contestant) -> None:
    sound(contestant, torch.empty(0, N), K)


def _three_dimensions(contestant: Contestant) -> None:
    x = gaussian(5, 1, N)
    y = sound(contestant, x, K)
    if not contestant.promises.stochastic:
        same(y, contestant.weights(x.squeeze(1), K).unsqueeze(1), 1e-4, "from the same rows in a matrix")


def _positive_dim(contestant: Contestant) -> None:
    x = gaussian(ROWS, N)
    y = contestant.along(x, K, 1)
    if y is None:
        raise NotPromised("no argument dim")
    same(y, contestant.weights(x, K), 1e-6, "from the result along −1")


def _half(contestant: Contestant, dtype: torch.dtype) -> None:
    x = gaussian(ROWS, 256) + 10  # where a threshold kept in this dtype is coarse
    y = sound(contestant, x.to(dtype), K)
    if y.dtype != dtype:
        raise Wrong(f"the result is {y.dtype}")


def _float16(contestant: Contestant) -> None:
    _half(contestant, torch.float16)


def _bfloat16(contestant: Contestant) -> None:
    _half(contestant, torch.bfloat16)


def _unchanged_input(contestant: Contestant) -> None:
    x, grad = gaussian(ROWS, N), gaussian(ROWS, N, seed=1)
    before = x.clone(), grad.clone()
    contestant.pulled_back(x, K, grad)
    contestant.weights(x, K)
    if not torch.equal(x, before[0]):
        raise Wrong("it changes its scores")
    if not torch.equal(grad, before[1]):
        raise Wrong("it changes the gradient it is given")


def _full_jacobian(contestant: Contestant) -> None:
    jacobian = contestant.jacobian(torch.tensor([[0.3, 0.1, -0.1, -0.2]]), 2)
    finite(jacobian, "the Jacobian")
    scale = float(jacobian.abs().max())
    beside = float((jacobian - jacobian.diag().diag()).abs().max())
    if beside < 0.05 * scale or scale == 0:
        raise Wrong(f"of size {scale:.3g} on the diagonal, {beside:.3g} beside it")
    if contestant.promises.stochastic or not contestant.promises.sums_to_k:
        return
    same(jacobian.sum(0), torch.zeros(4), 1e-3 * scale, "its columns sum to 0, as Σy does not change")


def _above_one(contestant: Contestant) -> None:
    x = torch.tensor([[4.0, *[0.0] * 7], [2.0, 2.0, *[0.0] * 6], [1.0, 0.0, -1.0, *[-20.0] * 5]])
    y = contestant.weights(x, 3)
    if contestant.ranks:
        raise NotPromised("ranks, not weights")
    finite(y)
    if not contestant.promises.bounded:
        raise NotPromised(f"bounded; the largest weight is {float(y.max()):.2f}")
    within_range(contestant, y)


def _million(contestant: Contestant) -> None:
    if contestant.promises.max_n < LONG:
        raise NotPromised(f"max_n is {contestant.promises.max_n}")
    x = gaussian(1, LONG)
    y = sound(contestant, x, 1000)[0]
    ordered = y[x[0].argsort()].double()
    if contestant.ranks or (contestant.promises.keeps_order and not contestant.promises.stochastic):
        falls = float(-(ordered.diff()).min())
        if falls > 1e-4 * float(y.abs().max()):
            raise Wrong(f"a larger score has {falls:.3g} less")


TRAPS = (
    Trap(
        "×1e4",
        "Scores 0 … 63 in any order, times 10⁴, k = 8: the hard selection to 1 %.",
        _times_10000,
    ),
    Trap("+1e4", "Normal scores plus 10⁴: the weights of the scores without it, to 10⁻³.", _plus_10000),
    Trap(
        "−inf", "16 of 64 scores at −inf: weight 0 there, sum k, no NaN, also in the gradient.", _some_masked
    ),
    Trap("k allowed", "All but k scores at −inf.", _exactly_k_allowed),
    Trap("< k allowed", "All but 5 scores at −inf, k = 8: the sum is 5.", _fewer_than_k_allowed),
    Trap("k = n", "k = n = 16: sum n, and each weight 1 if weights are bounded.", _k_is_n),
    Trap("ties", "64 equal scores: k/n each, if ties share.", _all_ties),
    Trap("empty", "A batch without rows: an empty result and an empty gradient.", _empty_batch),
    Trap(
        "(5, 1, n)", "Shape (5, 1, 64): the same weights as for the five rows in a matrix.", _three_dimensions
    ),
    Trap("dim = 1", "The last dimension of a matrix by its positive number.", _positive_dim),
    Trap("float16", "256 normal scores around 10 in float16: dtype kept, sum k to its resolution.", _float16),
    Trap("bfloat16", "The same in bfloat16.", _bfloat16),
    Trap(
        "input kept",
        "Neither call nor backward changes the scores or the incoming gradient.",
        _unchanged_input,
    ),
    Trap(
        "Jacobian",
        "The full Jacobian, not its diagonal: entries beside it, and columns that sum to 0.",
        _full_jacobian,
    ),
    Trap("≤ 1", "One, two or three scores that stand out, k = 3 of 8: no weight above 1.", _above_one),
    Trap("n = 1e6", "10⁶ normal scores, k = 1000, in float32: sum to 10⁻⁴, and order kept.", _million),
)
"""Those found while khot was written; `reported` has those of others."""
