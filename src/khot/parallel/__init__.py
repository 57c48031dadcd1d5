"""The same calls when a row does not fit one device, or the batch lives on many, on ``torch.distributed``."""

from khot.parallel.facade import topk
from khot.parallel.hard import hard_topk
from khot.parallel.sample import sample
from khot.parallel.threshold import laplace_topk, sigmoid_topk, sparse_topk

__all__ = ["hard_topk", "laplace_topk", "sample", "sigmoid_topk", "sparse_topk", "topk"]
