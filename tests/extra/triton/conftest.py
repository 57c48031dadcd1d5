"""Triton's interpreter, on the CPU: it must be chosen before the kernels are imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
