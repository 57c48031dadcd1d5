"""Problems of sigmoid top-k with their known answers.

A problem is made from its answer: draw logits z, then y = σ(z) solves the scores x = τz + shift with the
budget k = Σy. Every z is a multiple of 2⁻¹⁰, τ is 1 or 3 times a power of two, and the shift a multiple of
τ·2⁻¹⁰, so that x has no rounding error, in float32 neither.
"""

import math
import random
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor

EPS = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}
_GRID = 1024
_ANYTHING = (0.0, -7.5, 1e30, -1e30, math.inf, -math.inf, math.nan)


@dataclass(frozen=True)
class Problem:
    """Arguments of sigmoid_topk for one row, its weights and how far a result may be from them."""

    x: Tensor
    k: float
    temperature: float
    mask: Tensor
    weights: np.ndarray
    tolerance: np.ndarray


def _levels(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low * _GRID, high * _GRID)


def _logits() -> st.SearchStrategy[list[int]]:
    """In units of 2⁻¹⁰: spread, with many ties, and nearly hard (weights or distances to 1 below 1e-3)."""
    spread = st.lists(_levels(-12, 12), min_size=1, max_size=24)
    tied = st.lists(_levels(-6, 6), min_size=1, max_size=3).flatmap(
        lambda few: st.lists(st.sampled_from(few), min_size=1, max_size=24)
    )
    far = st.one_of(_levels(-30, -7), _levels(7, 30))
    return st.one_of(spread, tied, st.lists(far, min_size=1, max_size=24))


@st.composite
def known(draw: st.DrawFn, dtype: torch.dtype) -> Problem:
    """Finite entries with any weights, some excluded and some surely selected, in any order."""
    z = np.array(draw(_logits())) / _GRID
    temperature = draw(st.sampled_from([1.0, 3.0])) * 2.0 ** draw(st.integers(-8, 8))
    shift = temperature * draw(st.integers(-(2**20), 2**20)) / _GRID
    finite = 1 / (1 + np.exp(-z))
    budget = math.fsum(finite)
    assume(budget >= EPS[dtype])  # test_sigmoid_extreme_arguments.py has the budgets below
    tolerance = _tolerance(z, finite, EPS[dtype])

    entries = [(temperature * a + shift, True, y, t) for a, y, t in zip(z, finite, tolerance, strict=True)]
    surely = draw(st.integers(0, 3))
    entries += [(math.inf, True, 1.0, 0.0)] * surely
    entries += [(-math.inf, True, 0.0, 0.0)] * draw(st.integers(0, 2))
    entries += [(score, False, 0.0, 0.0) for score in draw(st.lists(st.sampled_from(_ANYTHING), max_size=3))]
    random.Random(draw(st.integers(0, 2**16))).shuffle(entries)

    k = torch.tensor(budget + surely, dtype=dtype).item()  # what the operator can represent
    change = abs(k - surely - budget) + EPS[torch.float64] * budget  # of k, and of Σy in float64
    x, mask, weights, spare = (list(column) for column in zip(*entries, strict=True))
    return Problem(
        x=torch.tensor(x, dtype=torch.float64).to(dtype),
        k=k,
        temperature=temperature,
        mask=torch.tensor(mask),
        weights=np.array(weights),
        tolerance=np.array(spare) + _of_budget(finite, change, weights),
    )


def _tolerance(z: np.ndarray, y: np.ndarray, eps: float) -> np.ndarray:
    """4 eps (y + y(1 − y)(|z| + log n)).

    The result σ(a) has a relative rounding error, and a = (x − anchor)/τ + offset an absolute one of
    eps·|a| and eps·(the offset's own size, at most |z| + log n), which dσ/da = y(1 − y) passes on.
    """
    return 4 * eps * (y + y * (1 - y) * (np.abs(z) + math.log(len(z))))


def _of_budget(finite: np.ndarray, change: float, weights: list[float]) -> np.ndarray:
    """What a change of the budget (its rounding) moves: 2 (w/Σw)|change|, or |change| if that is not small.

    With w = y(1 − y): ∂y/∂k = w/Σw, and a tenth of Σw changes that by less than a factor of 2. All weights
    move the same way, so none by more than the change.
    """
    y = np.array(weights)
    w, total = y * (1 - y), (finite * (1 - finite)).sum()
    return np.where(w > 0, change, 0.0) if change > 0.1 * total else 2 * w / total * change


@st.composite
def hard(draw: st.DrawFn, dtype: torch.dtype) -> Problem:
    """Budgets that end in a gap so wide that the weights are exactly 0 and 1.

    The threshold is at least half the gap, less log n, away from every score: more than the 104
    (float32) or 746 (float64) at which exp underflows.
    """
    gap = 400.0 if dtype == torch.float32 else 2000.0
    temperature = 2.0 ** draw(st.integers(-10, 10))
    chosen, others = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    within = st.sampled_from([0.0, 0.25, 1.0, 30.0, 1e3, 1e5])
    high = [temperature * (gap / 2 + draw(within)) for _ in range(chosen)]
    low = [-temperature * (gap / 2 + draw(within)) for _ in range(others)]
    entries = [(a, True, 1.0) for a in high] + [(a, True, 0.0) for a in low]
    entries += [(score, False, 0.0) for score in draw(st.lists(st.sampled_from(_ANYTHING), max_size=3))]
    random.Random(draw(st.integers(0, 2**16))).shuffle(entries)
    x, mask, weights = (list(column) for column in zip(*entries, strict=True))
    return Problem(
        x=torch.tensor(x, dtype=torch.float64).to(dtype),
        k=float(chosen),
        temperature=temperature,
        mask=torch.tensor(mask),
        weights=np.array(weights),
        tolerance=np.zeros(len(entries)),
    )
