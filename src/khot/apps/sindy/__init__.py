"""Governing equations with exactly k terms, for pysindy.

* :class:`ExactK`, a pysindy optimizer: exactly k terms, per equation or in total, or the whole path of k;
* :class:`TermPath`, the best terms for every k, the k that a criterion chooses, and a plot;
* :class:`MostFrequentTerms` keeps exactly k terms in an ``EnsembleOptimizer``;
  :func:`inclusion_frequencies` counts them;
* :class:`SmoothedDerivative` smooths the states that the library sees, together with their derivative.

The search itself needs only NumPy and torch; the optimizer and the derivative need pysindy: ``pip install
'khot[sindy]'``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from khot.apps.sindy.aggregator import MostFrequentTerms, inclusion_frequencies
from khot.apps.sindy.path import TermPath

if TYPE_CHECKING:
    from khot.apps.sindy.derivative import SmoothedDerivative
    from khot.apps.sindy.optimizer import ExactK

__all__ = ["ExactK", "MostFrequentTerms", "SmoothedDerivative", "TermPath", "inclusion_frequencies"]

_WITH_PYSINDY = {"ExactK": "optimizer", "SmoothedDerivative": "derivative"}


def __getattr__(name: str) -> Any:
    if name in _WITH_PYSINDY:
        return getattr(importlib.import_module(f"khot.apps.sindy.{_WITH_PYSINDY[name]}"), name)
    raise AttributeError(f"module 'khot.apps.sindy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
