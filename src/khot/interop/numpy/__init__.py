"""Top-k of NumPy arrays: the kernels of `khot.sigmoid_topk` and its family read the memory of the array.

Nothing is copied if the array

* is float32 or float64 (float16 is computed in float32),
* is C-contiguous and ``axis`` is its last (other strides take one contiguous copy),
* has the byte order of the machine (another one is an error).

khot never writes to your array, so it may be read-only. Integer scores are an error, as in torch. `vjp` and
`jvp` give Jacobian products in reverse and in forward mode.
"""

from khot.interop.numpy.derivatives import Gradients, jvp, vjp
from khot.interop.numpy.threshold import hard_topk, laplace_topk, normal_topk, sigmoid_topk, sparse_topk

__all__ = [
    "Gradients",
    "hard_topk",
    "jvp",
    "laplace_topk",
    "normal_topk",
    "sigmoid_topk",
    "sparse_topk",
    "vjp",
]
