"""Layers: start with :class:`TopK`; there is one thin ``torch.nn.Module`` per operator, and one for sampling.

All layers share their settings and rules. The temperature is float32 state: it is saved, and can be annealed
in place or learned. ``eval()`` removes randomness and nothing else (change that with ``eval_mode=``).
``layer.selected(scores)`` gives the indices of the selected entries.
"""

from khot.nn.activation import TopKActivation
from khot.nn.noise import GumbelTopK, PerturbedTopK
from khot.nn.ranks import DifferentiableTopK, PairwiseTopK, SoftRankTopK
from khot.nn.rows import (
    IterativeTopK,
    NetworkTopK,
    NeuralsortTopK,
    SinkhornTopK,
    SoftsortTopK,
    SuccessiveHalvingTopK,
    SuccessiveSoftmaxTopK,
)
from khot.nn.sampled import SampledTopK
from khot.nn.select import Select
from khot.nn.threshold import LaplaceTopK, NormalTopK, SigmoidTopK, SparseTopK
from khot.nn.topk import TopK

__all__ = [
    "DifferentiableTopK",
    "GumbelTopK",
    "IterativeTopK",
    "LaplaceTopK",
    "NetworkTopK",
    "NeuralsortTopK",
    "NormalTopK",
    "PairwiseTopK",
    "PerturbedTopK",
    "SampledTopK",
    "Select",
    "SigmoidTopK",
    "SinkhornTopK",
    "SoftRankTopK",
    "SoftsortTopK",
    "SparseTopK",
    "SuccessiveHalvingTopK",
    "SuccessiveSoftmaxTopK",
    "TopK",
    "TopKActivation",
]
