"""Relaxations of top-k: one file per operator, one contract, one registry."""

from khot.relaxations._select import Selection, select
from khot.relaxations.entries import Entries, topk_entries
from khot.relaxations.facade import topk, topk_matrix, topk_values
from khot.relaxations.hard import hard_topk
from khot.relaxations.noise.gumbel import gumbel_topk
from khot.relaxations.noise.perturbed import perturbed_topk
from khot.relaxations.ranks.bounds import (
    Lines,
    RankBounds,
    delta_bounds,
    heaviside_bounds,
    kth_best_bounds,
    rank_bounds,
)
from khot.relaxations.ranks.kth_best import kth_best
from khot.relaxations.ranks.pairwise import pairwise_topk
from khot.relaxations.ranks.quantiles import soft_median, soft_quantile
from khot.relaxations.ranks.soft_rank import soft_rank, soft_sort
from khot.relaxations.ranks.soft_rank_topk import soft_rank_topk
from khot.relaxations.registry import Relaxation, get, names, register, specs
from khot.relaxations.rows.iterative import iterative_topk
from khot.relaxations.rows.network import network_topk
from khot.relaxations.rows.neuralsort import neuralsort_topk
from khot.relaxations.rows.sinkhorn import sinkhorn_topk
from khot.relaxations.rows.softsort import softsort_topk
from khot.relaxations.rows.successive_halving import successive_halving_topk
from khot.relaxations.rows.successive_softmax import successive_softmax_topk
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold.cdf import cdf_topk
from khot.relaxations.threshold.laplace import laplace_topk
from khot.relaxations.threshold.normal import normal_topk
from khot.relaxations.threshold.sigmoid import inverse_sigmoid_topk, sigmoid_topk
from khot.relaxations.threshold.sparse import sparse_topk

__all__ = [
    "Entries",
    "Lines",
    "RankBounds",
    "Relaxation",
    "Selection",
    "cdf_topk",
    "delta_bounds",
    "get",
    "gumbel_topk",
    "hard_topk",
    "heaviside_bounds",
    "inverse_sigmoid_topk",
    "iterative_topk",
    "kth_best",
    "kth_best_bounds",
    "laplace_topk",
    "names",
    "network_topk",
    "neuralsort_topk",
    "normal_topk",
    "pairwise_topk",
    "perturbed_topk",
    "rank_bounds",
    "register",
    "select",
    "sigmoid_topk",
    "sinkhorn_topk",
    "soft_median",
    "soft_quantile",
    "soft_rank",
    "soft_rank_topk",
    "soft_sort",
    "softsort_topk",
    "sparse_topk",
    "specs",
    "straight_through",
    "successive_halving_topk",
    "successive_softmax_topk",
    "topk",
    "topk_entries",
    "topk_matrix",
    "topk_values",
]
