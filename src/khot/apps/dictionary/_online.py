r"""Online dictionary learning with codes of exactly k atoms.

Each batch X with codes Z updates exponentially weighted statistics, :math:`A \leftarrow \rho A + Z^\top Z`
and :math:`B \leftarrow \rho B + Z^\top X`. Then every atom in turn minimises the error that these describe,
with the others fixed, and is scaled to length one: :math:`d_j \leftarrow d_j + (b_j - a_j D) / a_{jj}`. Cost:
O(m² d) per batch, besides the codes. An atom that few samples use is replaced by the sample with the largest
error.

Reference: Mairal, Bach, Ponce & Sapiro (2010), Online Learning for Matrix Factorization and Sparse Coding,
with k atoms for each sample instead of the ℓ1 penalty.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from khot.apps.dictionary._matching_pursuit import Algorithm, codes_of

__all__ = ["OnlineDictionary", "first_atoms"]

Array = NDArray[Any]
_MEMORY = (5.0, 20.0, 16.0)
"""How many batches the statistics remember: at first, at last, and after how many batches one more."""

_PATIENCE = 10
"""Batches between two looks at unused atoms."""


@dataclass
class OnlineDictionary:
    """Atoms (m, d) of length one, their statistics, and how often each was used recently."""

    atoms: Array
    products: Array
    sums: Array
    uses: Array
    steps: int = 0

    @classmethod
    def from_atoms(cls, atoms: Array) -> OnlineDictionary:
        """Start from these atoms, with empty statistics."""
        count = len(atoms)
        products = np.zeros((count, count), dtype=atoms.dtype)
        return cls(atoms.copy(), products, np.zeros_like(atoms), np.zeros(count, dtype=atoms.dtype))

    def learn(
        self, batch: Array, k: int, replace_unused: float = 0.0, algorithm: Algorithm = "ols"
    ) -> tuple[float, float]:
        """Learn from a batch; returns its squared error and its sum of squares, before the atoms change."""
        codes = codes_of(self.atoms, batch, k, algorithm=algorithm)
        residual = batch - codes @ self.atoms
        first, last, pace = _MEMORY
        keep = 1 - 1 / min(first + self.steps / pace, last)
        self.products = keep * self.products + codes.T @ codes
        self.sums = keep * self.sums + codes.T @ batch
        self.uses = 0.9 * self.uses + (codes != 0).sum(axis=0)
        self.steps += 1
        self._update_atoms()
        if replace_unused > 0 and self.steps % _PATIENCE == 0:
            self._replace(batch, np.square(residual).sum(axis=1), replace_unused)
        return float(np.square(residual).sum()), float(np.square(batch).sum())

    def _update_atoms(self) -> None:
        curvature = np.diagonal(self.products)
        enough = curvature > np.finfo(self.atoms.dtype).eps * max(float(curvature.max(initial=0.0)), 1e-30)
        for atom in np.flatnonzero(enough):
            moved = self.atoms[atom] + (self.sums[atom] - self.products[atom] @ self.atoms) / curvature[atom]
            length = float(np.sqrt(moved @ moved))
            if length > 1e-12:
                self.atoms[atom] = moved / length

    def _replace(self, batch: Array, errors: Array, least: float) -> None:
        unused = np.flatnonzero(self.uses < least * self.uses.mean())
        worst = np.argsort(-errors, kind="stable")[: len(unused)]
        worst = worst[errors[worst] > 0]
        unused = unused[: len(worst)]
        lengths = np.sqrt(np.square(batch[worst]).sum(axis=1, keepdims=True))
        self.atoms[unused] = batch[worst] / lengths
        self.uses[unused] = self.uses.mean()
        self.products[unused] = 0
        self.products[:, unused] = 0
        self.sums[unused] = 0


def first_atoms(samples: Array, count: int, random: np.random.RandomState) -> Array:
    """Samples drawn at random, with a little noise, of length one."""
    n = len(samples)
    chosen = random.permutation(n)[:count] if count <= n else random.randint(n, size=count)
    atoms = samples[chosen]
    size = np.sqrt(np.square(samples).mean()) or 1.0
    atoms = atoms + 0.01 * size * random.normal(size=atoms.shape)
    return (atoms / np.sqrt(np.square(atoms).sum(axis=1, keepdims=True))).astype(samples.dtype)
