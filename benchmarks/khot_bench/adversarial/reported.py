"""Traps whose inputs come from the peers' own tests and from issues reported to them, re-created as data."""

from __future__ import annotations

import math

import torch

from khot_bench.adversarial.contestant import Contestant
from khot_bench.adversarial.demands import NotPromised, Wrong, finite, same
from khot_bench.adversarial.traps import Trap, gaussian, sound

__all__ = ["REPORTED"]


def _far_below_zero(contestant: Contestant, dtype: torch.dtype) -> None:
    x = torch.full((2, 128), -1005.0)
    x[:, 0] = -1000.0
    y = sound(contestant, x.to(dtype), 1)
    if not contestant.ranks and contestant.promises.keeps_order and not contestant.promises.stochastic:
        same(y.argmax(-1).double(), torch.zeros(2), 0, "the largest weight is that of the largest score")


def _far_below_zero_float16(contestant: Contestant) -> None:
    _far_below_zero(contestant, torch.float16)


def _far_below_zero_bfloat16(contestant: Contestant) -> None:
    _far_below_zero(contestant, torch.bfloat16)


def _nothing_allowed(contestant: Contestant) -> None:
    if contestant.ranks:
        raise NotPromised("ranks, not weights")
    x = torch.full((2, 10), -math.inf)
    sound(contestant, x, 2, torch.zeros(2, 10, dtype=torch.bool))


def _half_masked(contestant: Contestant) -> None:
    x = gaussian(2, 6, seed=42)
    x[:, 3:] = -math.inf
    y = contestant.weights(x, 2)
    finite(y)
    if contestant.promises.stochastic or contestant.ranks:
        return
    alone = torch.cat([contestant.weights(x[:, :3], 2), torch.zeros(2, 3)], -1)
    same(y, alone, 1e-4, "from the result for the allowed ones alone")


def _small_scores(contestant: Contestant) -> None:
    x = torch.tensor([[0.1, 0.3, 0.5, 0.03, 0.2, 0.15, 0.65, 0.7, 0.9]])
    for factor in (1.0, 1e4):  # the factor is a regularisation strength of 1e-4
        sound(contestant, x * factor, 3)


def _one_entry(contestant: Contestant) -> None:
    y = sound(contestant, gaussian(5, 1), 1)
    same(y, torch.ones(5, 1), 1e-4, "from 1")


def _one_row(contestant: Contestant) -> None:
    x = gaussian(4)
    y = sound(contestant, x, 2)
    if not contestant.promises.stochastic:
        same(y, contestant.weights(x.unsqueeze(0), 2)[0], 1e-5, "from the same row in a matrix")


def _derivative(contestant: Contestant) -> None:
    if contestant.promises.stochastic:
        raise NotPromised("stochastic")
    step = 1e-5
    for x in gaussian(5, 1, 10, dtype=torch.float64):
        dtype = contestant.weights(x, 3).dtype
        if dtype != torch.float64:
            raise Wrong(f"the result is {dtype}")
        found = contestant.jacobian(x, 3)
        moves = step * torch.eye(10, dtype=torch.float64)
        columns = [
            (contestant.weights(x + move, 3) - contestant.weights(x - move, 3))[0] / (2 * step)
            for move in moves
        ]
        same(found, torch.stack(columns, -1), 1e-3 * max(1.0, float(found.abs().max())), "from differences")


def _long_rows(contestant: Contestant) -> None:
    n = 30_000
    if contestant.promises.max_n < n:
        raise NotPromised(f"max_n is {contestant.promises.max_n}")
    sound(contestant, 0.5 * gaussian(10, n), 2)


REPORTED = (
    Trap(
        "entmax 30, f16",
        "−1005 but for one −1000, k = 1, in float16 (entmax, issue 30).",
        _far_below_zero_float16,
    ),
    Trap("entmax 30, bf16", "The same in bfloat16 (entmax, issue 30).", _far_below_zero_bfloat16),
    Trap("entmax 19", "All scores −inf: weights 0, no NaN (entmax, issue 19).", _nothing_allowed),
    Trap(
        "entmax mask",
        "Half of 6 scores at −inf: as if only the others were there (entmax's tests).",
        _half_masked,
    ),
    Trap("entmax long", "10 rows of 30 000 scores of deviation ½, k = 2 (entmax's tests).", _long_rows),
    Trap(
        "torchsort 63",
        "Nine scores between 0.03 and 0.9, as they are and × 10⁴ (torchsort, issue 63).",
        _small_scores,
    ),
    Trap("torchsort 64", "Rows of one entry: weight or rank 1 (torchsort, issue 64).", _one_entry),
    Trap(
        "torchsort grad",
        "5 × 10 in float64: the Jacobian is that of differences (torchsort's tests).",
        _derivative,
    ),
    Trap("softtorch 1-d", "One row without a batch, shape (4,) (softtorch's tests).", _one_row),
)
"""Numbers are those of the issues in the peers' repositories."""
