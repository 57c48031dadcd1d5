r"""Orthogonal matching pursuit and orthogonal least squares, for many samples at once.

k times, a sample x adds an atom and then takes the best combination of all its atoms. The next atom is the
one with the largest correlation :math:`|d_j^\top r|` to the residual r (``"omp"``), or the one that lowers
the error most, :math:`(d_j^\top r)^2 / \lVert d_j^\perp\rVert^2` (``"ols"``). With :math:`G = DD^\top` only
correlations have to be kept (Rubinstein, Zibulevsky & Elad 2008): a new atom is made orthogonal to the
earlier ones by one row of a Cholesky factor, and its part is subtracted from all correlations. Cost: O(k² m)
per sample after the product :math:`XD^\top`; each step handles all samples at once.

Reference: Pati, Rezaiifar & Krishnaprasad (1993), Orthogonal Matching Pursuit; Chen, Billings & Luo (1989),
Orthogonal least squares methods and their application to non-linear system identification.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Algorithm", "codes_of"]

Array = NDArray[Any]
Algorithm = Literal["omp", "ols"]
_ENTRIES = 2**19
"""Entries of a block's correlations: a block and its work stay near the processor."""


def codes_of(
    atoms: Array, samples: Array, k: int, *, algorithm: Algorithm = "ols", tol: float | None = None
) -> Array:
    """Codes (n, m) of samples (n, d) with k entries each, for atoms (m, d) of length one.

    A sample has fewer entries if it is zero or is matched exactly by fewer atoms, and with ``tol`` also once
    its squared residual is at most ``tol``.
    """
    gram = atoms @ atoms.T
    codes = np.zeros((len(samples), len(atoms)), dtype=samples.dtype)
    size = max(_ENTRIES // max(len(atoms), 1), 1)
    for first in range(0, len(samples), size):
        block = slice(first, first + size)
        squares = np.square(samples[block]).sum(axis=1)
        _fill(codes[block], gram, samples[block] @ atoms.T, squares, k, algorithm, tol)
    return codes


def _fill(
    codes: Array, gram: Array, rest: Array, squares: Array, k: int, algorithm: Algorithm, tol: float | None
) -> None:
    """Write the codes of a block whose correlations are ``rest``, which is used up."""
    rows = np.arange(len(codes))
    precision = float(np.finfo(codes.dtype).eps)
    chosen = np.zeros((len(codes), k), dtype=np.intp)
    parts = np.zeros((len(codes), k), dtype=codes.dtype)
    factor = np.zeros((k, k, len(codes)), dtype=codes.dtype)
    directions: list[Array] = []
    smallest = squares * (16 * precision) ** 2  # the square of a part that is rounding
    left = squares.copy()
    outside = np.ones_like(rest)  # of each atom, the squared length outside of those taken
    for step in range(k):
        if algorithm == "ols" and step:
            gain = np.square(rest)
            atom = np.divide(gain, outside, out=gain, where=outside > 64 * precision).argmax(axis=1)
        else:
            atom = np.abs(rest).argmax(axis=1)
        direction = gram[atom]
        for earlier, other in enumerate(directions):
            factor[step, earlier] = other[rows, atom]
            direction -= factor[step, earlier][:, None] * other
        pivot = direction[rows, atom]
        usable = pivot > 64 * precision
        root = np.sqrt(np.where(usable, pivot, 1.0))
        part = rest[rows, atom] / root
        usable &= np.square(part) > smallest
        if tol is not None:
            usable &= left > tol
        part = np.where(usable, part, 0.0)
        direction *= (usable / root)[:, None]
        rest -= part[:, None] * direction
        left -= np.square(part)
        factor[step, step] = np.where(usable, root, 1.0)
        factor[step, :step] *= usable
        chosen[:, step], parts[:, step] = atom, part
        directions.append(direction)
        if algorithm == "ols":
            outside -= np.square(direction)
    for step in reversed(range(k)):  # the transposed factor, from its last row
        parts[:, step] /= factor[step, step]
        parts[:, :step] -= parts[:, step, None] * factor[step, :step].T
        codes[rows, chosen[:, step]] += parts[:, step]
