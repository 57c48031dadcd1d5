"""The meaning of k: a number of terms for each equation, or a total for all equations."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from khot.apps.sindy.path import TermPath

__all__ = ["shared_out", "terms_of_each"]


def terms_of_each(name: str, k: Any, per_target: bool, equations: int, terms: int) -> int | tuple[int, ...]:
    """k for each equation, or one int if it is a total."""
    if isinstance(k, (str, bytes, bool)):
        raise ValueError(f"{name}: k must be an integer or a sequence of one for each equation, got {k!r}")
    if np.ndim(k) == 0:
        count = _count(name, k, terms if per_target else equations * terms)
        return (count,) * equations if per_target else count
    if len(k) != equations:
        raise ValueError(f"{name}: k must have one number for each of the {equations} equations, got {k!r}")
    if not per_target:
        raise ValueError(f"{name}: per_target=False takes one k for all equations together, got {k!r}")
    return tuple(_count(name, one, terms) for one in k)


def _count(name: str, k: Any, largest: int) -> int:
    try:
        count = operator.index(k)
    except TypeError:
        raise ValueError(f"{name}: k must be an integer or a sequence of integers, got {k!r}") from None
    if not 0 <= count <= largest:
        raise ValueError(f"{name}: k must be from 0 to {largest}, the terms there are, got {k!r}")
    return count


def shared_out(paths: Sequence[TermPath], total: int, tolerance: float) -> tuple[int, ...]:
    """Distribute ``total`` terms over the equations for the largest likelihood.

    If each equation has its own noise level, this minimises the sum of the logarithms of their errors (errors
    up to ``tolerance`` count as equal), whatever the units. It uses dynamic programming over the equations.
    """
    floor = max(tolerance, float(np.finfo(np.float64).tiny))
    costs = [np.log(np.maximum(path.errors, floor)) for path in paths]
    best = np.full(total + 1, np.inf)
    best[0] = 0.0
    choices: list[list[int]] = []
    for cost in costs:
        new, choice = np.full(total + 1, np.inf), [0] * (total + 1)
        for count in range(total + 1):
            for own in range(min(count, len(cost) - 1) + 1):
                reached = best[count - own] + cost[own]
                if reached < new[count]:
                    new[count], choice[count] = reached, own
        best = new
        choices.append(choice)
    shares: list[int] = []
    left = total
    for choice in reversed(choices):
        shares.append(choice[left])
        left -= choice[left]
    return tuple(reversed(shares))
