"""Check the parameters of a design, convert them to float64, and make them sum to k exactly.

``validate_args=False`` skips the checks of values, as everywhere in ``torch.distributions``.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor

from khot.constraints import SUM_TOLERANCE
from khot.relaxations._arguments import broadcasts_to
from khot.relaxations._plain_arguments import check_floating, check_sample_shape, is_number

__all__ = [
    "check_expansion",
    "check_one_of",
    "check_probabilities",
    "check_scores",
    "check_size",
    "check_units",
    "normalised",
    "validates",
]


def validates(name: str, validate_args: bool | None) -> bool:
    """Whether to check values: by default yes, if they can be read.

    This does not use torch's own default, which the first ``torch.compile`` of a process switches off for
    good.
    """
    if validate_args is None:
        return not torch.compiler.is_compiling()
    if not isinstance(validate_args, (bool, np.bool_)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: validate_args must be True, False or None, got {validate_args!r}")
    return bool(validate_args)


def check_expansion(name: str, batch_shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Check that a design of this batch shape can be expanded to the ``wanted`` one."""
    check_sample_shape(f"{name}.expand", wanted, "batch_shape")
    if not broadcasts_to(torch.Size(batch_shape), torch.Size(wanted)):
        raise ValueError(
            f"{name}.expand: batch_shape must be one to which {tuple(batch_shape)} broadcasts, "
            f"got {tuple(wanted)}"
        )


def check_one_of(name: str, parameters: dict[str, Tensor | None]) -> str:
    """The one parameter that is given; it must be a floating-point tensor."""
    given = [argument for argument, value in parameters.items() if value is not None]
    if len(given) != 1:
        raise ValueError(
            f"{name}: give {'one of ' if len(parameters) > 1 else ''}{', '.join(parameters)}, "
            f"got {' and '.join(given) or 'none'}"
        )
    argument = given[0]
    check_floating(name, argument, cast("Tensor", parameters[argument]))
    return argument


def check_units(name: str, argument: str, value: Tensor, dim: int = -1) -> None:
    """Raise unless there is something to draw along ``dim``; the batch may be empty."""
    if value.dim() == 0 or value.shape[dim] == 0:
        raise ValueError(f"{name}: {argument} must have at least one unit, got shape {tuple(value.shape)}")


def check_size(name: str, k: float, n: int, *, whole: bool) -> float:
    """Check 0 ≤ k ≤ n, and with ``whole`` that k is an integer; integers are returned as int."""
    if not is_number(k):
        raise TypeError(f"{name}: k must be a number, got {type(k).__name__}")
    if not 0 <= k <= n:
        raise ValueError(f"{name}: k must satisfy 0 <= k <= n = {n}, got k = {k}")
    if k == int(k):
        return int(k)
    if whole:
        raise ValueError(
            f"{name}: k must be an integer, got k = {k}; Systematic and TreePivotal take any number"
        )
    return float(k)


def check_scores(name: str, argument: str, scores: Tensor, k: float) -> None:
    """Raise for NaN, and for more than k logits at +inf; scores at +inf share k, as in ``khot.topk``."""
    if bool(scores.isnan().any()):
        raise ValueError(f"{name}: {argument} must not be NaN")
    if argument == "scores" or not scores.numel():
        return
    certain = int((scores == math.inf).sum(-1).max())
    if certain > k:
        raise ValueError(f"{name}: {argument} must have at most k = {k} entries at +inf, got {certain}")


def check_probabilities(name: str, probs: Tensor, k: float) -> None:
    """Raise unless all lie in [0, 1] and each row sums to k, up to the rounding of its dtype."""
    if probs.numel() == 0:
        return
    low, high = probs.detach().aminmax()
    if not (low >= 0 and high <= 1):
        raise ValueError(f"{name}: probs must lie in [0, 1], got values in [{low:g}, {high:g}]")
    tolerance = min(SUM_TOLERANCE[probs.dtype] * max(k, 1.0), 0.5)
    # In float32 at least: torch adds in blocks, so the error of the sum is far below the tolerance.
    precision = torch.float64 if probs.dtype == torch.float64 else torch.float32
    missing = (k - probs.detach().sum(-1, dtype=precision).double()).flatten()
    worst = missing[missing.abs().argmax()].item()
    if not abs(worst) <= tolerance:
        raise ValueError(
            f"{name}: probs must sum to k = {k} to within {tolerance:.1g}, got the sum {k - worst:.9g}"
        )


def normalised(probs: Tensor, k: float) -> Tensor:
    r"""Inclusion probabilities in float64 whose sum is k to the rounding of float64.

    The rounding error of a narrower type is spread over the entries between 0 and 1:
    :math:`\pi_i + \pi_i(1 - \pi_i)\,(k - \sum\pi)/\sum\pi(1 - \pi)`, which leaves 0 and 1 unchanged.
    """
    exact = probs.double()
    recorded = probs.requires_grad and torch.is_grad_enabled()
    # In place where nothing is recorded: each new tensor of a batch is fresh memory, which costs more than
    # what is computed in it.
    room = exact * (1 - exact) if recorded else (1 - exact).mul_(exact)
    total = room.sum(-1, keepdim=True)
    missing = k - exact.sum(-1, keepdim=True)
    share = torch.where(total > 0, missing / total.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    share = share.clamp(-1, 1)
    return exact + room * share if recorded else room.mul_(share).add_(exact)
