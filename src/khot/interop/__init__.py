"""Doors to khot from elsewhere.

`khot.interop.numpy` takes and gives arrays, by the same kernels, without copies; `khot.interop.jax` is the
threshold family, hard top-k and systematic sampling in JAX. Each is imported by its own name: nothing is
loaded with khot.
"""
