"""khot for NumPy arrays and in JAX.

`khot.interop.numpy` takes and returns arrays, with the same kernels and without copies. `khot.interop.jax`
has the threshold family, hard top-k and systematic sampling in pure JAX. Import the one you need by its own
name; ``import khot`` loads neither.
"""
