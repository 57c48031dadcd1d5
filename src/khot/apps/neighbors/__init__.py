"""Learned nearest neighbours: a metric in which the k nearest neighbours have the right label.

* :class:`NeighborLoss`, a loss over embeddings and labels, with the signature of pytorch-metric-learning;
* :class:`SoftKNeighborsClassifier`, a scikit-learn classifier that learns a linear map and votes.

The second needs scikit-learn (``pip install "khot[apps]"``), the first only torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from khot.apps.neighbors.loss import NeighborLoss

if TYPE_CHECKING:
    from khot.apps.neighbors.classifier import SoftKNeighborsClassifier

__all__ = ["NeighborLoss", "SoftKNeighborsClassifier"]


def __getattr__(name: str) -> Any:
    if name == "SoftKNeighborsClassifier":  # loads scikit-learn
        from khot.apps.neighbors.classifier import SoftKNeighborsClassifier

        return SoftKNeighborsClassifier
    raise AttributeError(f"module 'khot.apps.neighbors' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
