"""What a trap can demand of a result, and how it says that the demand was not met."""

from __future__ import annotations

import torch
from torch import Tensor

from khot_bench.adversarial.contestant import Contestant

__all__ = [
    "NotANumber",
    "NotPromised",
    "Wrong",
    "allowed_only",
    "finite",
    "finite_gradient",
    "of_shape",
    "same",
    "sums_to",
    "whole_budget",
    "within_range",
]

_OUTSIDE = 1e-4


class Wrong(AssertionError):
    """The result is not what it must be."""


class NotANumber(AssertionError):
    """There is a NaN or an infinity in the result or in the gradient."""


class NotPromised(AssertionError):
    """The operator does not declare what the trap is about; the message names the property."""


def of_shape(y: Tensor, shape: tuple[int, ...]) -> None:
    """The result has this shape."""
    if tuple(y.shape) != shape:
        raise Wrong(f"shape {tuple(y.shape)} instead of {shape}")


def finite(y: Tensor, what: str = "the result") -> None:
    """No NaN, no infinity."""
    bad = int((~torch.isfinite(y)).sum())
    if bad:
        raise NotANumber(f"{bad} of {y.numel()} in {what}")


def finite_gradient(contestant: Contestant, x: Tensor, k: int) -> Tensor:
    """The gradient of a fixed combination of the results is finite; returned."""
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    gradient = contestant.pulled_back(x, k, grad)[1]
    finite(gradient, "the gradient")
    return gradient


def sums_to(y: Tensor, wanted: float, tolerance: float) -> None:
    """Each row has this sum, within a share of it."""
    found = y.double().sum(-1).flatten()
    off = (found - wanted).abs() > tolerance * max(wanted, 1)
    if bool(off.any()):
        raise Wrong(f"sum {float(found[off][0]):.6g} instead of {wanted:g}")


def whole_budget(
    contestant: Contestant, y: Tensor, k: int, allowed: int | None = None, tolerance: float = 1e-4
) -> None:
    """Weights sum to k or to how many are allowed, ranks to 1 + … + n."""
    n = y.shape[-1]
    if contestant.ranks:
        sums_to(y, n * (n + 1) / 2, tolerance)
    elif contestant.promises.sums_to_k:
        sums_to(y, min(k, n if allowed is None else allowed), tolerance)


def within_range(contestant: Contestant, y: Tensor, tolerance: float = _OUTSIDE) -> None:
    """Weights lie in [0, 1], or are not negative if their operator is not bounded; ranks in [1, n]."""
    if not y.numel():
        return
    low, high = float(y.min()), float(y.max())
    least, most = (1.0, float(y.shape[-1])) if contestant.ranks else (0.0, 1.0)
    if low < least - tolerance * most:
        raise Wrong(f"{low:.4g} is below {least:g}")
    if (contestant.ranks or contestant.promises.bounded) and high > most * (1 + tolerance):
        raise Wrong(f"{high:.4g} is above {most:g}")


def allowed_only(contestant: Contestant, y: Tensor, allowed: Tensor) -> None:
    """Excluded entries have weight 0."""
    if contestant.ranks:
        return
    most = float(y.masked_fill(allowed, 0).abs().max())
    if most > _OUTSIDE:
        raise Wrong(f"an excluded entry has weight {most:.4g}")


def same(y: Tensor, wanted: Tensor, tolerance: float, what: str) -> None:
    """Both are equal up to the tolerance."""
    of_shape(y, tuple(wanted.shape))
    if not y.numel():
        return
    distance = float((y.double() - wanted.double()).abs().max())
    if not distance <= tolerance:
        raise Wrong(f"{what}: {distance:.3g} off")
