r"""Governing equations with exactly k terms: the best subset of a library, for pysindy.

For each equation the k terms with the least squared residual,

.. math:: \min_{c}\; \lVert \dot x - \Theta c \rVert^2 + \alpha \lVert c \rVert^2 \quad\text{with}\quad
    \lVert c \rVert_0 = k,

by enumeration if there are few subsets, otherwise by exchange from several starts, which ends in a local
optimum under single swaps. There is no threshold to tune: you set the number of terms, or choose it on the
path of all k.

Reference: Brunton, Proctor & Kutz (2016), Sparse identification of nonlinear dynamics; Bertsimas & Gurnee
(2023), Learning sparse nonlinear dynamics via mixed-integer optimization; Miller (2002), Subset Selection in
Regression.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from khot.apps.sindy._budget import shared_out, terms_of_each
from khot.apps.sindy._equations import least_squares, reduce_equations
from khot.apps.sindy._search import Method, Search
from khot.apps.sindy.path import Criterion, TermPath, term_paths
from khot.relaxations._plain_arguments import check_switch

try:
    from pysindy.optimizers.base import BaseOptimizer  # pyright: ignore[reportMissingTypeStubs]
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("khot.apps.sindy needs pysindy: pip install 'khot[sindy]'") from error

__all__ = ["ExactK"]

Array = NDArray[np.float64]
_LARGEST = 10
"""How far a path goes if nothing is said."""


class ExactK(BaseOptimizer):
    """A pysindy optimizer that keeps exactly k terms.

    Cost: for n samples and p terms, O(n p²) once; then O(p k²) for each of the C(p, k) subsets to enumerate,
    or O(k² p²) per round of swaps.

    Args:
        k: how many terms per equation: a number, or a sequence with one number for each equation; ``"path"``
            finds the best 0, 1, … terms of each equation and chooses k by ``criterion``.
        per_target: whether a single number ``k`` counts for each equation, or for all equations together. In
            the second case the terms are distributed for the largest likelihood, with a separate noise level
            for each equation.
        alpha: a ridge penalty, in the units of the library (of its normalised columns with
            ``normalize_columns``). With ``unbias`` it only affects the choice of terms, not the coefficients.
        criterion: for a path: ``"validation"``, ``"bic"`` or ``"aic"``; see :mod:`khot.apps.sindy.path`.
        max_terms: the largest k of a path; by default 10, or all terms if there are fewer.
        folds: the number of blocks of samples that validation leaves out in turn.
        tolerance: squared residuals up to this share of a derivative's sum of squares count as zero: errors
            smaller than that of the derivative itself need not be explained.
        search: ``"enumerate"``, ``"exchange"``, or ``"auto"``: enumerate up to ``max_subsets`` subsets,
            otherwise exchange.
        max_subsets: see ``search``.
        restarts: the number of random starts of the exchange, besides a greedy one.
        soft_start: add a start by soft top-k; the page on equations shows what it adds.
        random_state: an integer, the seed of the restarts.
        normalize_columns: scale columns to length one first. This only affects the meaning of ``alpha``.
        initial_guess: coefficients (equations, terms); the largest of them are a further start.
        copy_X: do not modify the library; otherwise it may be overwritten.
        unbias: fit the coefficients of the chosen terms again, without the ridge penalty.

    Attributes: ``coef_`` and those of every pysindy optimizer; ``k_``, the number of terms of each equation;
    ``path_``, a :class:`TermPath` for each equation if one was computed, otherwise None. pysindy counts a
    coefficient of at most 1e-14 as zero, so if k is larger than the data needs, fewer terms may be reported.

    Example:
        >>> random = np.random.default_rng(0)
        >>> library = random.normal(size=(200, 12))
        >>> target = library[:, [2, 5]] @ [3.0, -1.0] + 0.1 * random.normal(size=200)
        >>> ExactK(k=2).fit(library, target).ind_.nonzero()[1]
        array([2, 5])
        >>> ExactK(k="path").fit(library, target).k_
        (2,)

    Reference: Bertsimas & Gurnee (2023), Learning sparse nonlinear dynamics via mixed-integer optimization;
    Miller (2002), Subset Selection in Regression.
    """

    coef_: Array
    ind_: NDArray[np.bool_]
    k_: tuple[int, ...]
    path_: tuple[TermPath, ...] | None

    def __init__(
        self,
        k: int | Sequence[int] | Literal["path"] = "path",
        *,
        per_target: bool = True,
        alpha: float = 0.0,
        criterion: Criterion = "validation",
        max_terms: int | None = None,
        folds: int = 5,
        tolerance: float = 1e-8,
        search: Method = "auto",
        max_subsets: int = 20_000,
        restarts: int = 20,
        soft_start: bool = False,
        random_state: int = 0,
        normalize_columns: bool = False,
        initial_guess: Any = None,
        copy_X: bool = True,
        unbias: bool = True,
    ) -> None:
        super().__init__(
            normalize_columns=normalize_columns, initial_guess=initial_guess, copy_X=copy_X, unbias=unbias
        )
        self.k = k
        self.per_target = per_target
        self.alpha = alpha
        self.criterion: Criterion = criterion
        self.max_terms = max_terms
        self.folds = folds
        self.tolerance = tolerance
        self.search: Method = search
        self.max_subsets = max_subsets
        self.restarts = restarts
        self.soft_start = soft_start
        self.random_state = random_state

    def set_params(self, **params: Any) -> ExactK:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Set parameters and return the optimizer, as in scikit-learn (pysindy's optimizers return None)."""
        super().set_params(**params)
        return self

    def _reduce(self, x: Array, y: Array) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        search = self._checked(len(x))
        count, terms = y.shape[1], x.shape[1]
        self.path_ = None
        if isinstance(self.k, str):
            self.path_ = self._paths(x, y, self._largest(terms), search, self.criterion)
            supports = [path.supports[path.k] for path in self.path_]
        else:
            each = terms_of_each("ExactK", self.k, self.per_target, count, terms)
            if isinstance(each, int):
                paths = self._paths(x, y, min(each, terms), search, "bic")
                shares = shared_out(paths, each, self.tolerance)
                self.path_ = tuple(dataclasses.replace(p, k=k) for p, k in zip(paths, shares, strict=True))
                supports = [path.supports[path.k] for path in self.path_]
            else:
                equations, known = (
                    reduce_equations(x, y, self.alpha),
                    self._known(count, max(each, default=0)),
                )
                supports = [search.best(equations, e, k, known[e])[0] for e, k in enumerate(each)]
        self.k_ = tuple(map(len, supports))
        self.coef_ = np.zeros((count, terms))
        for equation, support in enumerate(supports):
            chosen = list(support)
            self.coef_[equation, chosen] = least_squares(x[:, chosen], y[:, equation], self.alpha)
        self.history_.append(self.coef_)

    def _paths(
        self, x: Array, y: Array, largest: int, search: Search, criterion: Criterion
    ) -> tuple[TermPath, ...]:
        return term_paths(
            x,
            y,
            largest,
            search,
            criterion=criterion,
            folds=self.folds,
            tolerance=self.tolerance,
            alpha=self.alpha,
            known=self._known(y.shape[1], largest),
        )

    def _known(self, count: int, largest: int) -> list[list[tuple[int, ...]]]:
        """The largest coefficients of the initial guess, as starts of each size."""
        if self.initial_guess is None:
            return [[] for _ in range(count)]
        orders = np.argsort(-np.abs(self.initial_guess), axis=1, kind="stable")
        return [[tuple(sorted(order[:k].tolist())) for k in range(largest + 1)] for order in orders]

    def _largest(self, terms: int) -> int:
        if self.max_terms is None:
            return min(_LARGEST, terms)
        if not 1 <= _integer("max_terms", self.max_terms) <= terms:
            raise ValueError(
                f"ExactK: max_terms must be from 1 to {terms}, the terms there are, got {self.max_terms}"
            )
        return self.max_terms

    def _checked(self, samples: int) -> Search:
        if isinstance(self.k, str) and self.k != "path":
            raise ValueError(
                f"ExactK: k must be an integer, a sequence of integers or 'path', got {self.k!r}"
            )
        if isinstance(self.k, str) and not self.per_target:
            raise ValueError(
                "ExactK: k='path' chooses for each equation: it needs per_target=True, got False"
            )
        if self.criterion not in ("validation", "bic", "aic"):
            raise ValueError(
                f"ExactK: criterion must be 'validation', 'bic' or 'aic', got {self.criterion!r}"
            )
        if self.search not in ("auto", "enumerate", "exchange"):
            raise ValueError(f"ExactK: search must be 'auto', 'enumerate' or 'exchange', got {self.search!r}")
        for name in ("per_target", "soft_start", "normalize_columns", "copy_X", "unbias"):
            check_switch("ExactK", name, getattr(self, name))
        for name, value in (("alpha", self.alpha), ("tolerance", self.tolerance)):
            number = isinstance(value, (int, float, np.number))  # pyright: ignore[reportUnnecessaryIsInstance]
            if not (number and 0 <= float(value) < np.inf):
                raise ValueError(f"ExactK: {name} must be a number of at least 0, got {value!r}")
        for name in ("max_subsets", "restarts", "random_state"):
            if _integer(name, getattr(self, name)) < 0:
                raise ValueError(f"ExactK: {name} must be at least 0, got {getattr(self, name)}")
        most = samples if isinstance(self.k, str) and self.criterion == "validation" else self.folds
        if not 2 <= _integer("folds", self.folds) <= most:
            raise ValueError(f"ExactK: folds must be from 2 to the {samples} samples, got {self.folds}")
        return Search(self.search, self.max_subsets, self.restarts, self.soft_start, self.random_state)


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"ExactK: {name} must be an integer, got {value!r}") from None
