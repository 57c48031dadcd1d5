r"""The best k of p terms by exchange: from a start, take the best single swap until none lowers the error.

For each term that may leave, the gain of every term that may enter is
:math:`(c_j^\top r)^2 / \lVert c_j^\perp\rVert^2`, with r the residual and :math:`c_j^\perp` the part of
column j orthogonal to the terms that stay. All pairs are computed at once. Cost: O(k² m p) per round of
swaps. The result is a local optimum under single swaps, the best one over several starts.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from khot.apps.sindy._equations import DEPENDENT, Array, Equations, orthonormal

__all__ = ["backward", "best_by_exchange", "exchange", "forward", "random_starts"]

_LOWER = 1e-9
"""A swap must lower the error by this share: rounding does not, so the search ends."""


def best_by_exchange(
    equations: Equations, equation: int, starts: Iterable[Sequence[int]]
) -> tuple[tuple[int, ...], float]:
    """The best local optimum over all starts, and its error."""
    best: tuple[int, ...] = ()
    least = np.inf
    seen: set[tuple[int, ...]] = set()
    for start in starts:
        begin = tuple(sorted(start))
        if begin in seen:
            continue
        found, error = exchange(equations, equation, begin)
        seen |= {begin, found}
        if error < least:
            best, least = found, error
    return best, least


def exchange(equations: Equations, equation: int, start: Sequence[int]) -> tuple[tuple[int, ...], float]:
    """The local optimum reached by single swaps, with sorted terms, and its error."""
    support = sorted(start)
    error = equations.error(equation, support)
    while support:
        rest = [support[:place] + support[place + 1 :] for place in range(len(support))]
        entering, errors = _best_additions(equations, equation, rest)
        place = int(errors.argmin())
        if entering[place] == support[place] or errors[place] >= error * (1 - _LOWER) - 1e-30:
            break
        swapped = sorted([*rest[place], int(entering[place])])
        reached = equations.error(equation, swapped)
        if reached >= error * (1 - _LOWER) - 1e-30:  # a gain of rounding
            break
        support, error = swapped, reached
    return tuple(support), error


def forward(equations: Equations, equation: int, k: int, start: Sequence[int] = ()) -> tuple[int, ...]:
    """Forward selection: k terms, each the one that lowers the error most; ties go by index."""
    support = list(start)
    while len(support) < k:
        entering = int(_best_additions(equations, equation, [support])[0][0])
        if entering < 0:
            entering = next(term for term in range(equations.terms) if term not in support)
        support.append(entering)
    return tuple(sorted(support))


def backward(equations: Equations, equation: int, k: int, start: Sequence[int]) -> tuple[int, ...]:
    """Backward elimination from the start to k terms: remove the term that increases the error least."""
    support = list(start)
    while len(support) > k:
        errors = [
            equations.error(equation, [other for other in support if other != term]) for term in support
        ]
        support.pop(int(np.argmin(errors)))
    return tuple(sorted(support))


def random_starts(terms: int, k: int, count: int, generator: np.random.Generator) -> list[tuple[int, ...]]:
    """Random supports, uniform over all of size k."""
    return [tuple(sorted(generator.permutation(terms)[:k].tolist())) for _ in range(count)]


def _best_additions(
    equations: Equations, equation: int, supports: Sequence[Sequence[int]]
) -> tuple[NDArray[np.intp], Array]:
    """For supports of one size: the term that lowers the error most, −1 if none may enter, and the error."""
    bases = _bases(equations.columns, supports)  # (supports, m, size)
    residuals = np.broadcast_to(equations.targets[:, equation], (len(supports), len(equations.targets)))
    for _ in range(2):
        parts = np.einsum("smk,sm->sk", bases, residuals)
        residuals = residuals - np.einsum("smk,sk->sm", bases, parts)
    inside = np.matmul(bases.transpose(0, 2, 1), equations.columns)
    outside = equations.squares - np.square(inside).sum(axis=1)
    free = outside > DEPENDENT
    np.put_along_axis(free, np.array(supports, dtype=np.intp).reshape(len(supports), -1), False, axis=1)
    gains = np.where(free, np.square(residuals @ equations.columns) / np.where(free, outside, 1.0), -1.0)
    entering = gains.argmax(axis=1)
    gain = np.take_along_axis(gains, entering[:, None], axis=1)[:, 0]
    errors = np.einsum("sm,sm->s", residuals, residuals)
    return np.where(gain < 0, -1, entering), np.maximum(errors - np.maximum(gain, 0.0), 0.0)


def _bases(columns: Array, supports: Sequence[Sequence[int]]) -> Array:
    """Orthonormal bases of the spans, with columns of zeros where terms depend on others."""
    size = len(supports[0])
    chosen = columns.T[np.array(supports, dtype=np.intp).reshape(len(supports), size)].transpose(0, 2, 1)
    if not size:
        return chosen
    bases, factors = np.linalg.qr(chosen)
    lengths = np.abs(np.diagonal(factors, axis1=1, axis2=2))
    for place in np.flatnonzero((lengths**2 <= DEPENDENT).any(axis=1)):
        basis = orthonormal(chosen[place])
        bases[place] = 0.0
        bases[place, :, : basis.shape[1]] = basis
    return bases
