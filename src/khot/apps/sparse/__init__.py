"""Sparse networks: weights of which exactly k are used, layer by layer or in a whole model.

* :func:`sparsify` puts :class:`TopKSparse` on a model's layers, :func:`make_permanent` takes it off;
* :class:`Sparsification` chooses the masks, once in a step, and reports them: :class:`SparseReport`;
* :func:`cubic` makes a model sparse little by little, :func:`layer_budgets` says how many weights a layer
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
