"""The scores that most tests begin with."""

import torch


def scores(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, spread: float = 1.0
) -> torch.Tensor:
    """Gaussian numbers from a seed of their own, of standard deviation ``spread``."""
    return spread * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
