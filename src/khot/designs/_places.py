"""Where the ones of k-hot rows are."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.availability import is_plain

__all__ = ["places_of_ones"]


def places_of_ones(x: Tensor, k: int) -> Tensor:
    """Increasing indices (…, k) of the ones in rows (…, n) that have k each.

    On other devices than the CPU by a sort: ``nonzero`` would wait for the device to say how many there are.
    """
    if is_plain(x):
        return x.nonzero()[:, -1].view(*x.shape[:-1], k)
    return torch.sort((x == 0).to(torch.uint8), dim=-1, stable=True).indices[..., :k]
