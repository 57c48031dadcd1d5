"""Relaxations of top-k: one file per operator, one contract, one registry."""

from khot.relaxations.calibration import calibrate_temperature
from khot.relaxations.cdf import cdf_topk
from khot.relaxations.facade import topk
from khot.relaxations.hard import hard_topk
from khot.relaxations.laplace import laplace_topk
from khot.relaxations.normal import normal_topk
from khot.relaxations.registry import Relaxation
from khot.relaxations.sigmoid import inverse_sigmoid_topk, sigmoid_topk
from khot.relaxations.sparse import sparse_topk
from khot.relaxations.straight_through import straight_through

__all__ = [
    "Relaxation",
    "calibrate_temperature",
    "cdf_topk",
    "hard_topk",
    "inverse_sigmoid_topk",
    "laplace_topk",
    "normal_topk",
    "sigmoid_topk",
    "sparse_topk",
    "straight_through",
    "topk",
]
