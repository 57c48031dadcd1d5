"""One thin ``torch.nn.Module`` per operator."""

from khot.nn.threshold import LaplaceTopK, NormalTopK, SigmoidTopK, SparseTopK

__all__ = ["LaplaceTopK", "NormalTopK", "SigmoidTopK", "SparseTopK"]
