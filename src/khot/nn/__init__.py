"""One thin ``torch.nn.Module`` per operator."""

from khot.nn.matrices import NetworkTopK, NeuralsortTopK, SoftsortTopK
from khot.nn.ranks import DifferentiableTopK, PairwiseTopK, SoftrankTopK
from khot.nn.threshold import LaplaceTopK, NormalTopK, SigmoidTopK, SparseTopK

__all__ = [
    "DifferentiableTopK",
    "LaplaceTopK",
    "NetworkTopK",
    "NeuralsortTopK",
    "NormalTopK",
    "PairwiseTopK",
    "SigmoidTopK",
    "SoftrankTopK",
    "SoftsortTopK",
    "SparseTopK",
]
