"""Relaxations of top-k: one file per operator, one contract, one registry."""

from khot.relaxations.calibration import calibrate_temperature
from khot.relaxations.cdf import cdf_topk
from khot.relaxations.facade import topk
from khot.relaxations.gumbel import gumbel_topk
from khot.relaxations.hard import hard_topk
from khot.relaxations.iterative import iterative_topk
from khot.relaxations.laplace import laplace_topk
from khot.relaxations.matrices import topk_matrix, topk_values
from khot.relaxations.network import network_topk
from khot.relaxations.neuralsort import neuralsort_topk
from khot.relaxations.normal import normal_topk
from khot.relaxations.pairwise import kth_best, pairwise_topk
from khot.relaxations.perturbed import perturbed_topk
from khot.relaxations.rank_bounds import delta_bounds, heaviside_bounds, kth_best_bounds, rank_bounds
from khot.relaxations.registry import Relaxation
from khot.relaxations.selection import Selection, select
from khot.relaxations.sigmoid import inverse_sigmoid_topk, sigmoid_topk
from khot.relaxations.sinkhorn import sinkhorn_topk
from khot.relaxations.soft_quantile import soft_median, soft_quantile
from khot.relaxations.soft_rank import soft_rank, soft_sort
from khot.relaxations.softrank import softrank_topk
from khot.relaxations.softsort import softsort_topk
from khot.relaxations.sparse import sparse_topk
from khot.relaxations.straight_through import straight_through
from khot.relaxations.successive_halving import successive_halving_topk
from khot.relaxations.successive_softmax import successive_softmax_topk

__all__ = [
    "Relaxation",
    "Selection",
    "calibrate_temperature",
    "cdf_topk",
    "delta_bounds",
    "gumbel_topk",
    "hard_topk",
    "heaviside_bounds",
    "inverse_sigmoid_topk",
    "iterative_topk",
    "kth_best",
    "kth_best_bounds",
    "laplace_topk",
    "network_topk",
    "neuralsort_topk",
    "normal_topk",
    "pairwise_topk",
    "perturbed_topk",
    "rank_bounds",
    "select",
    "sigmoid_topk",
    "sinkhorn_topk",
    "soft_median",
    "soft_quantile",
    "soft_rank",
    "soft_sort",
    "softrank_topk",
    "softsort_topk",
    "sparse_topk",
    "straight_through",
    "successive_halving_topk",
    "successive_softmax_topk",
    "topk",
    "topk_matrix",
    "topk_values",
]
