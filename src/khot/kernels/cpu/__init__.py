"""Calls the compiled kernels with CPU tensors.

Each function makes its inputs contiguous, allocates its outputs, and passes addresses and sizes. None
records a graph or knows of autograd: that is the business of the operators that call them. Ask `usable`
first.
"""

from khot.kernels.cpu.draws import pivotal, subsets, systematic
from khot.kernels.cpu.entries import topk_entries
from khot.kernels.cpu.gates import GateKind, gate_jacobian, gated_topk
from khot.kernels.cpu.order import argsort, hard_topk
from khot.kernels.cpu.passing import usable
from khot.kernels.cpu.ranks import Projection, block_sums, isotonic, soft_rank, soft_rank_jacobian
from khot.kernels.cpu.routing import ROUTER_MOST, router_gradient, router_topk

__all__ = [
    "ROUTER_MOST",
    "GateKind",
    "Projection",
    "argsort",
    "block_sums",
    "gate_jacobian",
    "gated_topk",
    "hard_topk",
    "isotonic",
    "pivotal",
    "router_gradient",
    "router_topk",
    "soft_rank",
    "soft_rank_jacobian",
    "subsets",
    "systematic",
    "topk_entries",
    "usable",
]
