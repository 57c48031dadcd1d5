"""Linear systems in batches, around a fault of torch.

With several threads, torch's LU factorisation of a *batch* of matrices of more than about 128 rows fails on
some CPUs: MKL complains about a parameter of DLASWP, and `torch.linalg.solve` about pivots below 1 (seen with
torch 2.13.0). One matrix at a time is right, so large ones are solved one after another. Graphs of
`torch.compile` and calls under `torch.vmap` hand the batch to torch.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

__all__ = ["solved"]

_LARGEST_TOGETHER = 128


def solved(matrices: Tensor, right: Tensor) -> Tensor:
    """The solutions (…, n) of the systems (…, n, n) with the right sides (…, n).

    Unlike `torch.linalg.solve` it never raises: a singular matrix or a NaN has an answer that is not finite.
    """
    small = matrices.shape[-1] <= _LARGEST_TOGETHER or matrices.shape[:-2].numel() <= 1
    if small or matrices.device.type != "cpu" or torch.compiler.is_compiling():
        return _solved(matrices, right)
    pairs = zip(matrices.flatten(0, -3), right.flatten(0, -2), strict=True)
    return torch.stack([_solved(matrix, side) for matrix, side in pairs]).view(right.shape)


def _solved(matrices: Tensor, right: Tensor) -> Tensor:
    found = torch.linalg.solve_ex(matrices, right.unsqueeze(-1))[0]  # pyright: ignore
    return cast("Tensor", found).squeeze(-1)
