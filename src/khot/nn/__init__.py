"""One thin ``torch.nn.Module`` per operator."""

from khot.nn.matrices import NetworkTopK, NeuralsortTopK, SoftsortTopK
from khot.nn.noise import GumbelTopK, PerturbedTopK
from khot.nn.ranks import DifferentiableTopK, PairwiseTopK, SoftRankTopK
from khot.nn.sampled import SampledTopK
from khot.nn.select import Select
from khot.nn.sequences import IterativeTopK, SuccessiveHalvingTopK, SuccessiveSoftmaxTopK
from khot.nn.threshold import LaplaceTopK, NormalTopK, SigmoidTopK, SparseTopK
from khot.nn.transport import SinkhornTopK

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
]
