"""One thin ``torch.nn.Module`` per operator."""

from khot.nn.matrices import NetworkTopK, NeuralsortTopK, SoftsortTopK
from khot.nn.ranks import DifferentiableTopK, PairwiseTopK, SoftrankTopK
from khot.nn.select import Select
from khot.nn.sequences import IterativeTopK, SuccessiveHalvingTopK, SuccessiveSoftmaxTopK
from khot.nn.threshold import LaplaceTopK, NormalTopK, SigmoidTopK, SparseTopK

__all__ = [
    "DifferentiableTopK",
    "IterativeTopK",
    "LaplaceTopK",
    "NetworkTopK",
    "NeuralsortTopK",
    "NormalTopK",
    "PairwiseTopK",
    "Select",
    "SigmoidTopK",
    "SoftrankTopK",
    "SoftsortTopK",
    "SparseTopK",
    "SuccessiveHalvingTopK",
    "SuccessiveSoftmaxTopK",
]
