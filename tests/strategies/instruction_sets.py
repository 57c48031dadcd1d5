"""The instruction sets that kernels are compiled for, one process each."""

import pytest

# Where AVX2 or AVX-512 is the best that the CPU has, all other tests of kernels run it.
every_instruction_set = pytest.mark.parametrize(
    "isa", ["base", *(pytest.param(isa, marks=pytest.mark.full) for isa in ("avx2", "avx512"))]
)
