r"""A library of terms and its targets, reduced to few rows with the same least-squares problems.

With the thin factor :math:`R` of :math:`[\Theta\; Y] = QR`, the error of any terms S in any equation,
:math:`\min_c \lVert Y_e - \Theta_S c\rVert^2`, can be computed from the columns of R: p + q rows instead of
n. Unlike a Gram matrix, this does not square the condition number. Columns and targets are scaled to length
one; a ridge :math:`\alpha\lVert c\rVert^2` adds one row for each term. Cost: O(n (p + q)²), once.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DEPENDENT", "Array", "Equations", "least_squares", "orthonormal", "reduce_equations"]

Array = NDArray[np.float64]

DEPENDENT = 1e-10
"""A column of length one whose part outside of others is shorter than the root of this adds nothing."""


@dataclass(frozen=True)
class Equations:
    """Columns (m, p) and targets (m, q), scaled to length one; zero columns stay zero.

    ``squares`` (p,) are the original squared lengths of the columns, ``samples`` the original number of rows.
    """

    columns: Array
    squares: Array
    targets: Array
    samples: int

    @property
    def terms(self) -> int:
        """The number of terms in the library."""
        return self.columns.shape[1]

    def error(self, equation: int, support: Any) -> float:
        """The squared residual with these terms, relative to the squared length of the target."""
        target = self.targets[:, equation]
        basis = orthonormal(self.columns[:, list(support)])
        target = target - basis @ (basis.T @ target)
        target = target - basis @ (basis.T @ target)
        return float(target @ target)


def reduce_equations(library: Array, targets: Array, alpha: float = 0.0) -> Equations:
    """The equations of a library (n, p) and targets (n, q), with a ridge in the units of the library."""
    norms, columns = _unit(np.asarray(library, dtype=np.float64))
    sides = _unit(np.asarray(targets, dtype=np.float64))[1]
    samples = len(columns)
    if alpha > 0:
        ridge = np.diag(np.sqrt(alpha) / norms)
        columns = np.concatenate([columns, ridge])
        sides = np.concatenate([sides, np.zeros((len(ridge), sides.shape[1]))])
    factor: Array = np.asarray(np.linalg.qr(np.concatenate([columns, sides], axis=1), mode="r"))
    # Ridge rows make columns longer than one; their lengths cancel in every support.
    columns = _unit(factor[:, : columns.shape[1]])[1]
    squares = np.square(columns).sum(axis=0)
    return Equations(columns, squares, factor[:, columns.shape[1] :], samples)


def least_squares(columns: Array, target: Array, alpha: float) -> Array:
    """The ridge-regression coefficients of the columns, computed with scaled columns."""
    scale = np.linalg.norm(columns, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    scaled = columns / scale
    if alpha > 0:
        scaled = np.concatenate([scaled, np.diag(np.sqrt(alpha) / scale)])
        target = np.concatenate([target, np.zeros(len(scale))])
    return np.linalg.lstsq(scaled, target, rcond=None)[0] / scale


def orthonormal(columns: Array) -> Array:
    """An orthonormal basis of the span; columns that depend on earlier ones are left out."""
    if not columns.shape[1]:
        return columns
    basis, factor = np.linalg.qr(columns)
    kept = np.abs(np.diagonal(factor)) ** 2 > DEPENDENT
    return basis if kept.all() else _one_by_one(columns)


def _one_by_one(columns: Array) -> Array:
    basis: list[Array] = []
    for column in columns.T:
        rest = column.copy()
        for _ in range(2):
            for vector in basis:
                rest -= vector * (vector @ rest)
        length = float(np.linalg.norm(rest))
        if length**2 > DEPENDENT:
            basis.append(rest / length)
    return np.stack(basis, axis=1) if basis else np.zeros((len(columns), 0))


def _unit(columns: Array) -> tuple[Array, Array]:
    """Lengths, 1 in place of 0, and columns of length one, safe from overflow."""
    largest = np.abs(columns).max(axis=0, initial=0.0)
    largest = np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(columns / largest, axis=0)
    lengths = np.where(lengths > 0, lengths, 1.0)
    return lengths * largest, columns / largest / lengths
