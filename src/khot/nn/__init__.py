"""One thin ``torch.nn.Module`` per operator."""

from khot.nn.matrices import NetworkTopK, NeuralsortTopK, SoftsortTopK
from khot.nn.noise import GumbelTopK, PerturbedTopK
from khot.nn.ranks import DifferentiableTopK, PairwiseTopK, SoftrankTopK
from khot.nn.threshold import LaplaceTopK, NormalTopK, SigmoidTopK, SparseTopK
from khot.nn.transport import SinkhornTopK

__all__ = [
    "DifferentiableTopK",
    "GumbelTopK",
    "LaplaceTopK",
    "NetworkTopK",
    "NeuralsortTopK",
    "NormalTopK",
    "PairwiseTopK",
    "PerturbedTopK",
    "SigmoidTopK",
    "SinkhornTopK",
    "SoftrankTopK",
    "SoftsortTopK",
    "SparseTopK",
]
