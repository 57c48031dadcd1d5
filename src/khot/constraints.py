"""Constraints for k-hot vectors, in the style of ``torch.distributions.constraints``.

``capped_simplex(k)`` holds the inclusion probabilities: vectors in [0, 1]ⁿ with sum k. ``k_hot(k)`` holds its
corners: zeros and ones with exactly k ones. ``rounded_k_hot(k)`` holds the vectors that designs draw when k
is not an integer: ⌊k⌋ or ⌈k⌉ ones.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions.constraints import Constraint

from khot.kernels.availability import is_plain
from khot.relaxations._plain_arguments import check_tensor, is_number

__all__ = ["capped_simplex", "k_hot", "rounded_k_hot"]

# How far Σy may stray from k, relative to max(k, 1): the accuracy the operators promise.
SUM_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


class capped_simplex(Constraint):
    r"""The k-capped simplex :math:`\{\pi \in [0, 1]^n : \sum_i \pi_i = k\}`.

    Args:
        k: the sum; a number, or a tensor that broadcasts to the batch shape.

    Example:
        >>> capped_simplex(2).check(torch.tensor([0.5, 0.5, 1.0]))
        tensor(True)
        >>> capped_simplex(1).check(torch.tensor([[0.5, 0.5], [1.5, -0.5]]))
        tensor([ True, False])
    """

    event_dim = 1

    def __init__(self, k: float | Tensor) -> None:
        self.k = check_sum("capped_simplex", k)
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        """Whether each row of ``value`` lies in the capped simplex, to the precision of its dtype."""
        check_tensor("capped_simplex.check", "value", value)
        exact = value.double()
        k = torch.as_tensor(self.k, dtype=exact.dtype, device=value.device)
        tolerance = SUM_TOLERANCE.get(value.dtype, 0.0) * k.clamp_min(1)
        in_range = ((value >= 0) & (value <= 1)).all(-1)
        return in_range & ((exact.sum(-1) - k).abs() <= tolerance)

    def __repr__(self) -> str:
        """Show k."""
        return f"capped_simplex(k={self.k})"


class k_hot(Constraint):
    """Vectors of zeros and ones with exactly k ones.

    Args:
        k: the number of ones; an integer, or an integer tensor that broadcasts to the batch shape.

    Example:
        >>> k_hot(2).check(torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]))
        tensor([ True, False])
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, k: int | Tensor) -> None:
        self.k = check_sum("k_hot", k)
        whole = not is_plain(k) or bool((k % 1 == 0).all()) if isinstance(k, Tensor) else k % 1 == 0
        if not whole:
            raise ValueError(f"k_hot: k must be an integer, got {k}")
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        """Whether each row of ``value`` is k-hot."""
        check_tensor("k_hot.check", "value", value)
        binary = ((value == 0) | (value == 1)).all(-1)
        return binary & ((value != 0).sum(-1) == torch.as_tensor(self.k, device=value.device))

    def __repr__(self) -> str:
        """Show k."""
        return f"k_hot(k={self.k})"


class rounded_k_hot(Constraint):
    """Vectors of zeros and ones with ⌊k⌋ or ⌈k⌉ ones.

    Args:
        k: the mean number of ones; any number, or a tensor that broadcasts to the batch shape.

    Example:
        >>> rounded_k_hot(1.5).check(torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]))
        tensor([ True,  True, False])
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, k: float | Tensor) -> None:
        self.k = check_sum("rounded_k_hot", k)
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        """Whether each row of ``value`` has ⌊k⌋ or ⌈k⌉ ones and zeros elsewhere."""
        check_tensor("rounded_k_hot.check", "value", value)
        binary = ((value == 0) | (value == 1)).all(-1)
        ones = (value != 0).sum(-1)
        k = torch.as_tensor(self.k, dtype=torch.float64, device=value.device)
        return binary & (ones >= k.floor()) & (ones <= k.ceil())

    def __repr__(self) -> str:
        """Show k."""
        return f"rounded_k_hot(k={self.k})"


def check_sum(name: str, k: float | Tensor) -> float | Tensor:
    """``k``, after checking that it is finite and not negative: a number, or a real tensor."""
    if isinstance(k, Tensor):
        if k.is_complex() or k.dtype == torch.bool:
            raise TypeError(f"{name}: k must be a real tensor, got {k.dtype}")
        if is_plain(k) and not bool(((k >= 0) & (k < float("inf"))).all()):
            low, high = k.min(), k.max()
            raise ValueError(f"{name}: k must be finite and not negative, got values in [{low:g}, {high:g}]")
        return k
    if not is_number(k):
        raise TypeError(f"{name}: k must be a number or a tensor, got {k!r}")
    if not 0 <= k < float("inf"):
        raise ValueError(f"{name}: k must be finite and not negative, got {k}")
    return k
