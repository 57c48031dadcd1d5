"""Sparse networks: use exactly k weights, per layer or in the whole model.

* :func:`sparsify` puts :class:`TopKSparse` on the layers of a model, :func:`make_permanent` removes it;
* :class:`Sparsification` chooses the masks, once per step, and reports them: :class:`SparseReport`;
* :func:`cubic` is a schedule from dense to sparse, :func:`layer_budgets` tells how many weights each layer
  keeps, and :class:`DropAndGrow` is the rule of RigL, for comparison.
"""

from khot.apps.sparse.budgets import layer_budgets
from khot.apps.sparse.drop_and_grow import DropAndGrow
from khot.apps.sparse.parametrization import TopKSparse
from khot.apps.sparse.report import SparseLayer, SparseReport, SparseStep
from khot.apps.sparse.schedule import cubic
from khot.apps.sparse.sparsification import Sparsification
from khot.apps.sparse.sparsify import make_permanent, sparsification_of, sparsify

__all__ = [
    "DropAndGrow",
    "SparseLayer",
    "SparseReport",
    "SparseStep",
    "Sparsification",
    "TopKSparse",
    "cubic",
    "layer_budgets",
    "make_permanent",
    "sparsification_of",
    "sparsify",
]
