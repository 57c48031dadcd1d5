r"""The best k of p terms by trying all :math:`\binom pk` subsets, many at a time.

The columns of each subset are orthogonalised one after another (modified Gram–Schmidt, with the target last),
for thousands of subsets in one step. Cost: :math:`O(\binom pk\, m k^2)` for m rows. It is as accurate as a QR
decomposition of each subset.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from khot.apps.sindy._equations import DEPENDENT, Array

__all__ = ["best_by_enumeration"]

_BLOCK = 2048


def best_by_enumeration(columns: Array, target: Array, k: int) -> tuple[int, ...]:
    """The k of the columns (m, p) with the smallest residual of the target (m,); the first one on a tie."""
    best, found = np.inf, tuple(range(k))
    for subsets in _blocks(columns.shape[1], k):
        errors = _errors(columns, target, subsets)
        place = int(errors.argmin())
        if errors[place] < best:
            best, found = float(errors[place]), tuple(int(term) for term in subsets[place])
    return found


def _blocks(terms: int, k: int) -> Iterator[NDArray[np.intp]]:
    subsets = itertools.combinations(range(terms), k)
    while block := list(itertools.islice(subsets, _BLOCK)):
        yield np.array(block, dtype=np.intp).reshape(len(block), k)


def _errors(columns: Array, target: Array, subsets: NDArray[np.intp]) -> Array:
    vectors = columns.T[subsets]  # (subsets, k, m)
    residual = np.broadcast_to(target, (len(subsets), len(target))).copy()
    for place in range(subsets.shape[1]):
        vector = vectors[:, place]
        squares = np.einsum("sm,sm->s", vector, vector)[:, None]
        vector = np.where(squares > DEPENDENT, vector / np.sqrt(np.maximum(squares, DEPENDENT)), 0.0)
        residual -= vector * np.einsum("sm,sm->s", vector, residual)[:, None]
        later = vectors[:, place + 1 :]
        later -= np.einsum("sm,slm->sl", vector, later)[:, :, None] * vector[:, None]
    return np.einsum("sm,sm->s", residual, residual)
