"""Helpers for the contract checks: test problems, tolerances, and the error they raise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from khot.relaxations.registry import Relaxation

__all__ = ["ContractError", "budgets", "draw", "require", "require_close", "scores", "sum_tolerance"]


class ContractError(AssertionError):
    """Raised when an operator or a design does not do what it promises.

    Example:
        >>> require(1 + 1 == 3, "the sum must be 3")
        Traceback (most recent call last):
        khot.testing.requirements.ContractError: the sum must be 3
    """


def require(condition: bool | Tensor, message: str) -> None:
    """Raise :class:`ContractError` with ``message`` unless ``condition`` holds."""
    if not bool(condition):
        raise ContractError(message)


def require_close(actual: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    """Raise unless the two agree within an absolute ``tolerance`` and share shape and dtype."""
    require(
        actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
    )
    require(actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype}, not {expected.dtype}")
    if actual.numel():
        worst = (actual.double() - expected.double()).abs().max().item()
        require(worst <= tolerance, f"{what}: off by {worst:.3g}, allowed {tolerance:.3g}")


def scores(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Gaussian scores, distinct, from a fixed seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def draw(spec: Relaxation, x: Tensor, k: Any, options: Mapping[str, Any], **more: Any) -> Tensor:
    """The weights, with a freshly seeded generator if the operator is random."""
    if spec.stochastic:
        more["generator"] = torch.Generator().manual_seed(0)
    return spec.weights(x, k, **{**options, **more})


def budgets(spec: Relaxation, n: int) -> Iterator[float]:
    """Budgets of every kind that the operator accepts."""
    yield from sorted({1, 2, n // 2, n - 1})
    if spec.real_k:
        yield from (0.5, 1.5, n - 0.25)


def sum_tolerance(dtype: torch.dtype, n: int, k: float) -> float:
    """How far Σy may be from k."""
    relative = {torch.float32: 1e-5, torch.float64: 1e-9}
    if dtype in relative:
        return relative[dtype] * k
    info = torch.finfo(dtype)
    return info.eps * k + n * info.smallest_normal * info.eps
