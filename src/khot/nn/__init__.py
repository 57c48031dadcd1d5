"""One thin ``torch.nn.Module`` per operator."""

from khot.nn.ranks import DifferentiableTopK, PairwiseTopK, SoftrankTopK
from khot.nn.threshold import LaplaceTopK, NormalTopK, SigmoidTopK, SparseTopK

__all__ = [
    "DifferentiableTopK",
    "LaplaceTopK",
    "NormalTopK",
    "PairwiseTopK",
    "SigmoidTopK",
    "SoftrankTopK",
    "SparseTopK",
]
