"""Relaxations of top-k: one file per operator, one contract, one registry."""

from khot.relaxations.hard import hard_topk
from khot.relaxations.registry import Relaxation
from khot.relaxations.sigmoid import inverse_sigmoid_topk, sigmoid_topk
from khot.relaxations.straight_through import straight_through

__all__ = ["Relaxation", "hard_topk", "inverse_sigmoid_topk", "sigmoid_topk", "straight_through"]
