"""Top-k in JAX: the threshold family, hard top-k and systematic sampling, in pure JAX.

The functions do what those of khot do for tensors: the same arguments (``axis`` instead of ``dim``), the same
rules for ties, infinities, masks and budgets. They work under ``jit``, ``vmap``, ``grad`` and ``jvp``, in any
order, with ``jax_enable_x64`` or without; half types are computed in float32. k may be traced, except in
`systematic_sample`.
"""

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('khot.interop.jax needs jax: pip install "khot[jax]"', name="jax") from error

from khot.interop.jax.hard import hard_topk
from khot.interop.jax.systematic import systematic_sample
from khot.interop.jax.threshold import laplace_topk, sigmoid_topk, sparse_topk

__all__ = ["hard_topk", "laplace_topk", "sigmoid_topk", "sparse_topk", "systematic_sample"]
