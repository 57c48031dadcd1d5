"""Compiled kernels and the doors to them.

`loader` finds the compiled library (or says why there is none), `cpu` calls it with tensors. Nothing here
is needed for correctness: every operator has a portable version in torch operations.
"""
