"""Checks for the scores, k, temperature, mask and dimension that all operators share, with one wording.

An error names the function, the argument, the rule and the value. Numbers are always checked. The values of
tensors are checked only where reading them needs no device synchronisation (plain CPU tensors in eager mode).
"""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._plain_arguments import (
    check_dense,
    check_dim,
    check_floating,
    check_switch,
    is_scores,
)
from khot.relaxations._temperature import within_range

__all__ = [
    "Number",
    "Rows",
    "allowed_scores",
    "as_rows",
    "at_most_all",
    "broadcasts_to",
    "budget",
    "check_at_most",
    "check_budget",
    "check_count",
    "check_device",
    "check_hard",
    "check_mask",
    "check_per_row",
    "check_temperature",
    "compute_dtype",
    "directed",
    "per_row",
    "position",
]

Number = int | float
_NUMBER = (int, float, np.integer, np.floating, torch.SymInt, torch.SymFloat)


class Rows(NamedTuple):
    """A checked problem with the selected dimension last.

    ``scores`` is −inf where the mask is False; ``k`` and ``temperature`` have shape (…, 1) and the dtype of
    computation. If k is a number, ``n_sorted`` is how many of the largest scores matter, so that a partial
    sort is enough; if k is a tensor, it is None.
    """

    scores: Tensor
    k: Tensor
    temperature: Tensor
    n_sorted: int | None


def as_rows(
    name: str,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
) -> Rows:
    """Check the arguments of the operator called ``name`` and bring them to row form."""
    last = position(name, scores, dim)
    k_rows = budget(name, scores, k, last)
    check_temperature(name, temperature)
    t_rows = per_row(name, "temperature", scores, within_range(temperature, compute_dtype(scores)), last)
    rows = allowed_scores(name, scores, mask).movedim(last, -1)
    n_sorted = None if isinstance(k, Tensor) else math.floor(k) + 2  # one more: k may round up to an integer
    return Rows(rows, k_rows, t_rows, n_sorted)


def position(name: str, scores: Tensor, dim: int, argument: str = "scores") -> int:
    """The non-negative index of ``dim``, after checking that ``scores`` is a floating-point tensor."""
    check_floating(name, argument, scores)
    if scores.dim() == 0:
        raise ValueError(f"{name}: {argument} must have at least one dimension, got a scalar tensor")
    if type(dim) is not int:
        check_dim(name, dim)
    if not -scores.dim() <= dim < scores.dim():
        raise IndexError(f"{name}: dim must be in [{-scores.dim()}, {scores.dim() - 1}], got {dim}")
    return dim % scores.dim()


def directed(name: str, scores: Tensor, largest: bool) -> Tensor:
    """The scores, negated if ``largest=False``, so that the largest are always wanted.

    What is no tensor of scores stays as it is: the check that follows refuses it by name.
    """
    if largest is True:
        return scores
    check_switch(name, "largest", largest)
    if largest or not is_scores(scores):
        return scores
    return -scores


def budget(name: str, scores: Tensor, k: Number | Tensor, dim: int, *, integer: bool = False) -> Tensor:
    """Check 0 ≤ k ≤ n and return it with shape (…, 1) in the dtype of computation.

    With ``integer`` a number must be whole and a tensor is rounded.
    """
    check_budget(name, scores, k, dim, integer=integer)
    rows = per_row(name, "k", scores, k, dim)
    return rows.round() if integer and isinstance(k, Tensor) else rows


def check_budget(name: str, scores: Tensor, k: Number | Tensor, dim: int, *, integer: bool = False) -> None:
    """Check 0 ≤ k ≤ n, and with ``integer`` that a number is whole."""
    n = scores.shape[dim]
    if type(k) is int and 0 <= k <= n:  # the rule; to ask whether it is a tensor costs more than the rest
        return
    limit = f"k must satisfy 0 <= k <= n = {n} (scores.shape = {tuple(scores.shape)}, dim = {dim})"
    if isinstance(k, Tensor):
        _check_real(name, "k", k)
        if not is_plain(k):
            return
        low, high = _extremes(k)
        if low >= 0 and high <= n:
            return
        got = f"a tensor with values in [{low:g}, {high:g}]"
    elif isinstance(k, bool) or not isinstance(k, _NUMBER):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: k must be a number or a tensor, got {k!r}")
    elif 0 <= k <= n:
        if integer and k != int(k):
            raise ValueError(f"{name}: k must be an integer here, got k = {k}")
        return
    else:
        got = f"k = {k}"
    raise ValueError(f"{name}: {limit}, got {got}")


def check_count(name: str, scores: Tensor, k: int, dim: int, *, at_most: bool = False) -> int:
    """Check an integer k, 0 ≤ k ≤ n (or above n with ``at_most``), and return it as a Python int."""
    check_switch(name, "at_most", at_most)
    if isinstance(k, Tensor):
        raise TypeError(
            f"{name}: k must be one integer, got a tensor: the result has k places, the same in all rows"
        )
    if isinstance(k, bool) or not isinstance(k, _NUMBER):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: k must be an integer, got {k!r}")
    if at_most:
        check_at_most(name, k)
    check_budget(name, scores, min(k, scores.shape[dim]) if at_most else k, dim, integer=True)
    return int(k)


def check_at_most(name: str, k: Number | Tensor) -> None:
    """Check a budget that may exceed n: a number, not negative, and finite."""
    if isinstance(k, Tensor):
        return
    if isinstance(k, bool) or not isinstance(k, _NUMBER):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: k must be a number or a tensor, got {k!r}")
    if not 0 <= k < math.inf:
        raise ValueError(f"{name}: k must be finite and not negative, got k = {k}")


def at_most_all(name: str, scores: Tensor, k: Number | Tensor, dim: int) -> Number | Tensor:
    """The budget, limited to n."""
    n = scores.shape[dim]
    check_at_most(name, k)
    return k.clamp_max(n) if isinstance(k, Tensor) else min(k, n)


def check_mask(name: str, scores: Tensor, mask: Tensor) -> None:
    """Check that ``mask`` is boolean and broadcasts to ``scores``."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:  # pyright: ignore[reportUnnecessaryIsInstance]
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: mask must be a boolean tensor (True = may be selected), got {got}")
    check_dense(name, "mask", mask)
    if not broadcasts_to(mask.shape, scores.shape):
        raise ValueError(
            f"{name}: mask must broadcast to scores.shape = {tuple(scores.shape)}, "
            f"got shape {tuple(mask.shape)}"
        )
    check_device(name, scores, "mask", mask)


def allowed_scores(name: str, scores: Tensor, mask: Tensor | None) -> Tensor:
    """``scores`` with −inf where ``mask`` is False."""
    if mask is None:
        return scores
    check_mask(name, scores, mask)
    return scores.masked_fill(~mask, -math.inf)


def compute_dtype(scores: Tensor) -> torch.dtype:
    """The dtype of computation: half types are computed in float32."""
    return torch.float64 if scores.dtype == torch.float64 else torch.float32


def check_hard(name: str, scores: Tensor, k: Number | Tensor, dim: int, hard: bool) -> None:
    """Check that ``hard`` is True or False, and if True that k is whole: so many entries are selected."""
    check_switch(name, "hard", hard)
    if hard:
        check_budget(name, scores, k, position(name, scores, dim), integer=True)


def per_row(name: str, argument: str, scores: Tensor, value: Number | Tensor, dim: int) -> Tensor:
    """``value`` with shape (…, 1), broadcast to the rows of ``scores``, in the dtype of computation."""
    batch = scores.shape[:dim] + scores.shape[dim + 1 :]
    dtype = compute_dtype(scores)
    if not isinstance(value, Tensor):
        if torch.compiler.is_compiling():
            # By a product: what torch.full makes of a number, Dynamo takes for a constant.
            return (torch.ones((), dtype=dtype, device=scores.device) * value).expand(*batch, 1)
        return torch.full((), float(value), dtype=dtype, device=scores.device).expand(*batch, 1)
    check_per_row(name, argument, scores, value, dim)
    value = value.to(dtype)  # in one view of a number: more of them are too many for AOTInductor (torch 2.13)
    return (value.unsqueeze(-1) if value.dim() else value).expand(*batch, 1)


def check_per_row(name: str, argument: str, scores: Tensor, value: Number | Tensor, dim: int) -> None:
    """Check that a tensor broadcasts to the rows of ``scores``, and is where they are."""
    if not isinstance(value, Tensor):
        return
    batch = scores.shape[:dim] + scores.shape[dim + 1 :]
    if not broadcasts_to(value.shape, batch):
        raise ValueError(
            f"{name}: {argument} must broadcast to scores.shape without dim {dim}, {tuple(batch)}, "
            f"got shape {tuple(value.shape)}"
        )
    check_device(name, scores, argument, value)


def check_temperature(name: str, temperature: Number | Tensor, argument: str = "temperature") -> None:
    """Check that the temperature, or another width, is positive and finite."""
    if type(temperature) is float and 0 < temperature < math.inf:
        return
    if isinstance(temperature, Tensor):
        _check_real(name, argument, temperature)
        if is_plain(temperature):
            low, high = _extremes(temperature)
            if not (low > 0 and high < math.inf):
                raise ValueError(
                    f"{name}: {argument} must be positive and finite, "
                    f"got a tensor with values in [{low:g}, {high:g}]"
                )
    elif isinstance(temperature, bool) or not isinstance(temperature, _NUMBER):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: {argument} must be a number or a tensor, got {temperature!r}")
    elif not 0 < temperature < math.inf or (type(temperature) is int and temperature > sys.float_info.max):
        raise ValueError(f"{name}: {argument} must be positive and finite, got {temperature}")


def _check_real(name: str, argument: str, value: Tensor) -> None:
    if value.is_complex() or value.dtype == torch.bool:
        raise TypeError(f"{name}: {argument} must be a real tensor, got {value.dtype}")
    check_dense(name, argument, value)


def check_device(name: str, scores: Tensor, argument: str, value: Tensor) -> None:
    """Check that ``value`` is on the device of ``scores``."""
    if value.device != scores.device:
        raise ValueError(
            f"{name}: {argument} must be on the device of the scores, {scores.device}, got {value.device}"
        )


def _extremes(value: Tensor) -> tuple[float, float]:
    """The smallest and the largest value; of doubles on the CPU, as some integers cannot be compared."""
    low, high = value.detach().cpu().double().aminmax()
    return low.item(), high.item()


def broadcasts_to(shape: torch.Size, target: torch.Size) -> bool:
    """Whether a tensor of this shape can be expanded to the target."""
    return len(shape) <= len(target) and all(shape[-i] in (1, target[-i]) for i in range(1, len(shape) + 1))
