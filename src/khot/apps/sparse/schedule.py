"""Density schedules: from dense to sparse during training.

Any function of the step will do, including those of :mod:`khot.schedules`.
"""

from __future__ import annotations

from khot.apps.sparse.budgets import check_density
from khot.relaxations._plain_arguments import check_integer
from khot.schedules import Schedule

__all__ = ["cubic"]


def cubic(start: float, end: float, steps: int, *, warmup: int = 0) -> Schedule:
    r"""Go from ``start`` to ``end`` as :math:`d = d_1 + (d_0 - d_1)(1 - t)^3`: fast at first, then slowly.

    Args:
        start: the first density.
        end: the last density, from ``warmup + steps`` steps on.
        steps: the number of steps from ``start`` to ``end``.
        warmup: the number of steps to stay at ``start`` first.

    Returns:
        A function from the step to the density.

    Example:
        >>> [round(cubic(1.0, 0.1, steps=2)(step), 4) for step in range(4)]
        [1.0, 0.2125, 0.1, 0.1]

    Reference: Zhu & Gupta (2017), To prune, or not to prune, arXiv:1710.01878.
    """
    check_density("cubic", "start", start)
    check_density("cubic", "end", end)
    check_integer("cubic", "steps", steps)
    check_integer("cubic", "warmup", warmup, 0)

    def density(step: int) -> float:
        left = 1 - min(max(step - warmup, 0), steps) / steps
        return end + (start - end) * left**3

    return density
