"""Governing equations with a stated number of terms, for pysindy.

* :class:`ExactK`, an optimizer of pysindy: exactly k terms, in each equation or in all, or the whole path;
* :class:`TermPath`, the best terms for every k, the k that a criterion chooses, and its plot;
* :class:`MostFrequentTerms` keeps exactly k in an ``EnsembleOptimizer``; :func:`inclusion_frequencies`;
* :class:`SmoothedDerivative` smooths what the library sees together with its derivative.

The search itself needs NumPy and torch alone; the optimizer and the derivative need pysindy: ``pip install
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
