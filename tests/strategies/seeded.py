"""Random tensors that are the same in every run."""

import torch
from torch import Tensor


def randn(*shape: int, seed: int = 0) -> Tensor:
    """Normal variables."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
