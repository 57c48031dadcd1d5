"""One thin ``torch.nn.Module`` per operator."""

from khot.nn.sigmoid import SigmoidTopK

__all__ = ["SigmoidTopK"]
