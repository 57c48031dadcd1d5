"""What `khot reproduce sindy` compares: optimizers of pysindy, and what each is told."""

# pyright: basic
from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from khot_bench.reproduce.known_equations import Known, powers
from khot_bench.reproduce.ledger import Numbers

__all__ = ["METHODS", "TOLD", "available", "library_and_slopes", "score"]

TOLD = ("ExactK, told each k", "ExactK, told the total", "MIOSR, told each k", "MIOSR, told the total")
"""Methods that know how many terms there are."""


def _exact(k: Any, most: int, **options: Any) -> Any:
    from khot.apps.sindy import ExactK

    return ExactK(k, **options) if k != "path" else ExactK("path", max_terms=most, restarts=3, **options)


def _pysindy(name: str, **options: Any) -> Any:
    import pysindy

    return getattr(pysindy, name)(**options)


METHODS: dict[str, Callable[[tuple[int, ...], int], Any]] = {
    "ExactK, told each k": lambda ks, most: _exact(ks, most),
    "ExactK, told the total": lambda ks, most: _exact(sum(ks), most, per_target=False, restarts=3),
    "ExactK, k by validation": lambda ks, most: _exact("path", most),
    "STLSQ(0.1)": lambda ks, most: _pysindy("STLSQ", threshold=0.1),
    "STLSQ(0.5)": lambda ks, most: _pysindy("STLSQ", threshold=0.5),
    "SSR": lambda ks, most: _pysindy("SSR"),
    "FROLS": lambda ks, most: _pysindy("FROLS"),
    "MIOSR, told each k": lambda ks, most: _pysindy("MIOSR", group_sparsity=ks, target_sparsity=None),
    "MIOSR, told the total": lambda ks, most: _pysindy("MIOSR", target_sparsity=sum(ks)),
}


def available(method: str) -> bool:
    """Whether the packages of a method are there."""
    from importlib.util import find_spec

    return find_spec("gurobipy") is not None or not method.startswith("MIOSR")


@functools.lru_cache(maxsize=2)
def library_and_slopes(known: Known, degree: int) -> tuple[np.ndarray, np.ndarray, list[tuple[int, ...]]]:
    """Monomials of the smoothed states, derivatives, and the monomials' powers: the same for all methods."""
    from khot.apps.sindy import SmoothedDerivative

    derivative: Any = SmoothedDerivative()
    slopes = derivative(known.x, known.t)
    kept = np.isfinite(slopes).all(axis=1)
    states = derivative.smoothed_x_[kept]
    monomials = powers(states.shape[1], degree)
    library = np.stack([np.prod(states ** np.array(p), axis=1) for p in monomials], axis=1)
    return library, slopes[kept], monomials


def score(method: str, known: Known, degree: int, most: int) -> Numbers:
    """F1 of the terms found, whether every equation is right, seconds of the fit, and whether it failed."""
    library, slopes, monomials = library_and_slopes(known, degree)
    ks = tuple(len(terms) for terms in known.terms)
    begin = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer = METHODS[method](ks, most)
            optimizer.fit(library, slopes)
    except Exception as error:
        if not method.startswith("MIOSR"):
            raise
        large = "too large" in str(error)  # for the restricted licence
        return {"f1": 0.0, "exact": 0.0, "seconds": 0.0, "failed": 1.0, "too large": float(large)}
    seconds = time.process_time() - begin
    found = [{monomials[i] for i in np.flatnonzero(row)} for row in optimizer.coef_]
    return {**agreement(found, known.terms), "seconds": seconds, "failed": 0.0}


def agreement(found: Sequence[set[tuple[int, ...]]], true: Sequence[frozenset[tuple[int, ...]]]) -> Numbers:
    """F1 over the terms of all equations, and 1 if every equation has exactly the right ones."""
    right = sum(len(a & b) for a, b in zip(found, true, strict=True))
    total = sum(map(len, found)) + sum(map(len, true))
    return {"f1": 2 * right / total, "exact": float(all(a == b for a, b in zip(found, true, strict=True)))}
