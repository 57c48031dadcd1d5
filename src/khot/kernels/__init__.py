"""Compiled kernels, and the functions that call them.

`loader` finds the compiled library (or tells why there is none), `cpu` calls it with tensors. Nothing here
is needed for correctness: every operator has a portable version in torch operations.
"""
