"""The best k terms of an equation, for one k or for all k up to a maximum: by enumeration, or by exchange.

The exchange starts from a greedy selection, random ones, soft top-k, supports given by the caller, and on a
path from the best supports with one term less and one term more.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from khot.apps.sindy._enumeration import best_by_enumeration
from khot.apps.sindy._equations import Equations
from khot.apps.sindy._exchange import backward, best_by_exchange, exchange, forward, random_starts
from khot.apps.sindy._soft_start import soft_starts

__all__ = ["Found", "Method", "Search"]

Method = Literal["auto", "enumerate", "exchange"]
Found = tuple[tuple[int, ...], float]
"""Terms in order, and the squared residual as a share of the target's squares."""

_MOST = 20_000_000
"""More subsets than this are not enumerated, even if told to."""

_NEAR = 2000
"""Subsets that are enumerated for each k in a fold of a validation."""


@dataclass(frozen=True)
class Search:
    """The options of the search; see :class:`khot.apps.sindy.ExactK`, which documents them."""

    method: Method = "auto"
    max_subsets: int = 20_000
    restarts: int = 20
    soft_start: bool = False
    seed: int = 0

    def best(self, equations: Equations, equation: int, k: int, known: Sequence[Sequence[int]] = ()) -> Found:
        """The best k terms of one equation."""
        if self._enumerates(equations.terms, k):
            support = best_by_enumeration(equations.columns, equations.targets[:, equation], k)
            return support, equations.error(equation, support)
        starts = [tuple(start) for start in known if len(start) == k]
        starts.append(forward(equations, equation, k))
        starts += soft_starts(equations, [equation], [k]) if self.soft_start else []
        generator = np.random.default_rng([self.seed, equation, k])
        starts += random_starts(equations.terms, k, self.restarts, generator)
        return best_by_exchange(equations, equation, starts)

    def path(
        self, equations: Equations, equation: int, largest: int, known: Sequence[Sequence[int]] = ()
    ) -> list[Found]:
        """The best 0, 1, …, ``largest`` terms of one equation; no error is larger than the one before."""
        found: list[Found] = []
        for k in range(largest + 1):
            grown = [forward(equations, equation, k, found[-1][0])] if found else []
            found.append(self.best(equations, equation, k, [*known, *grown]))
        for k in range(largest - 1, 0, -1):
            if not self._enumerates(equations.terms, k):
                start = backward(equations, equation, k, found[k + 1][0])
                found[k] = min(found[k], exchange(equations, equation, start), key=lambda one: one[1])
        return found

    def near(
        self, equations: Equations, equation: int, known: Sequence[tuple[int, ...]]
    ) -> list[tuple[int, ...]]:
        """The best terms that exchange finds from the path of other samples: one support for each k."""
        found: list[tuple[int, ...]] = []
        for k, support in enumerate(known):
            if math.comb(equations.terms, k) <= min(_NEAR, self.max_subsets):
                found.append(best_by_enumeration(equations.columns, equations.targets[:, equation], k))
            else:
                starts = [support, forward(equations, equation, k, found[-1])]
                found.append(best_by_exchange(equations, equation, starts)[0])
        return found

    def _enumerates(self, terms: int, k: int) -> bool:
        subsets = math.comb(terms, k)
        if self.method == "enumerate" and subsets > _MOST:
            raise ValueError(
                f"ExactK: search='enumerate' would try {subsets:.3g} subsets, {k} of {terms} terms: more "
                f"than {_MOST:.0e}; use search='auto'"
            )
        return self.method == "enumerate" or (self.method == "auto" and subsets <= self.max_subsets)
