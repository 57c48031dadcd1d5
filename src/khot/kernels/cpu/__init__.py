"""Call the compiled kernels with CPU tensors.

Each function makes its inputs contiguous, allocates its outputs, and passes addresses and sizes. None of them
records a graph; the operators that call them take care of autograd. Call `usable` first.
"""

from khot.kernels.cpu.draws import pivotal, shuffled_systematic, subsets, systematic, weighted_subsets
from khot.kernels.cpu.entries import entries_jacobian, entries_with_thresholds, topk_entries
from khot.kernels.cpu.gates import (
    GateKind,
    gate_jacobian,
    gated_topk,
    sigmoid_jacobian,
    sigmoid_with_thresholds,
)
from khot.kernels.cpu.halves import HALVES, sigmoid_half, sigmoid_half_jacobian
from khot.kernels.cpu.order import argsort, entries_between, hard_topk
from khot.kernels.cpu.passing import usable
from khot.kernels.cpu.poisson import poisson_covariance, poisson_inclusion, poisson_weights
from khot.kernels.cpu.ranks import Projection, block_sums, isotonic, soft_rank, soft_rank_jacobian
from khot.kernels.cpu.routing import ROUTER_MOST, router_gradient, router_topk
from khot.kernels.cpu.rows import SmallKind, small_rows
from khot.kernels.cpu.shards import GateShard, gate_sums, gate_weights, slope_product, slope_sums
from khot.kernels.cpu.splitting import brewer, cube, eliminate

__all__ = [
    "HALVES",
    "ROUTER_MOST",
    "GateKind",
    "GateShard",
    "Projection",
    "SmallKind",
    "argsort",
    "block_sums",
    "brewer",
    "cube",
    "eliminate",
    "entries_between",
    "entries_jacobian",
    "entries_with_thresholds",
    "gate_jacobian",
    "gate_sums",
    "gate_weights",
    "gated_topk",
    "hard_topk",
    "isotonic",
    "pivotal",
    "poisson_covariance",
    "poisson_inclusion",
    "poisson_weights",
    "router_gradient",
    "router_topk",
    "shuffled_systematic",
    "sigmoid_half",
    "sigmoid_half_jacobian",
    "sigmoid_jacobian",
    "sigmoid_with_thresholds",
    "slope_product",
    "slope_sums",
    "small_rows",
    "soft_rank",
    "soft_rank_jacobian",
    "subsets",
    "systematic",
    "topk_entries",
    "usable",
    "weighted_subsets",
]
