"""The arguments that all estimators share: scores, k, the dimension, and a design."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from khot.designs import KHotDistribution
from khot.designs.registry import get
from khot.kernels.availability import inside_a_transform
from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    check_budget,
    check_temperature,
    compute_dtype,
    directed,
    per_row,
    position,
)
from khot.relaxations._plain_arguments import check_generator

__all__ = [
    "Design",
    "check_k",
    "check_losses",
    "check_not_mapped",
    "check_relaxation",
    "distribution_of",
    "has_log_prob",
    "inclusion_of",
    "is_transformed",
    "parameter_of",
    "rows_of",
]

Design = str | type[KHotDistribution]

_functorch = cast("Any", torch._C)._functorch  # pyright: ignore[reportPrivateUsage]


def rows_of(
    name: str,
    scores: Tensor,
    k: float,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    generator: torch.Generator | None,
) -> tuple[Tensor, int, int]:
    """The checked scores with the drawn dimension last, in the dtype of computation; k; the dimension."""
    last = position(name, scores, dim)
    check_generator(name, generator)
    check_k(name, scores, k, last)
    rows = allowed_scores(name, directed(name, scores, largest), mask)
    return rows.movedim(last, -1).to(compute_dtype(scores)), int(k), last


def check_k(name: str, scores: Tensor, k: float, dim: int) -> None:
    """Check that k is one whole number, 0 ≤ k ≤ n."""
    if isinstance(k, Tensor):
        raise TypeError(f"{name}: k must be a number, got a tensor")
    check_budget(name, scores, k, dim, integer=True)


def check_relaxation(name: str, scores: Tensor, temperature: Number | Tensor, dim: int) -> None:
    """Check the temperature of a relaxed sample: a number, or one for each row."""
    check_temperature(name, temperature)
    if isinstance(temperature, Tensor):
        per_row(name, "temperature", scores, temperature, dim)


def check_not_mapped(name: str, rows: Tensor) -> None:
    """Raise inside ``torch.func.vmap``: what is drawn depends on values, which nobody may read there."""
    while is_transformed(rows):
        if _functorch.is_batchedtensor(rows):
            raise RuntimeError(
                f"{name}: torch.func.vmap cannot map over it, because it reads values; call it on the whole "
                "batch: it draws from each row"
            )
        rows = _functorch.get_unwrapped(rows)


def is_transformed(tensor: Tensor) -> bool:
    """Whether ``torch.func`` maps over the tensor or differentiates in it."""
    transforms = not torch.compiler.is_compiling() and inside_a_transform()
    return transforms and _functorch.is_functorch_wrapped_tensor(tensor)


def check_losses(name: str, losses: Tensor, shape: torch.Size) -> None:
    """Check what a loss returned for samples of this batch shape."""
    if not isinstance(losses, Tensor) or losses.is_complex() or losses.dtype == torch.bool:  # pyright: ignore[reportUnnecessaryIsInstance]
        got = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: f must return a real tensor, one loss for each sample, got {got}")
    if losses.shape != shape:
        raise ValueError(
            f"{name}: f must give one loss for each sample, shape {tuple(shape)}, got {tuple(losses.shape)}"
        )


def has_log_prob(design: Design) -> bool:
    """Whether sets have a log-probability without conditioning on an order."""
    kind, base = get(design), KHotDistribution
    return kind._log_prob is not base._log_prob or kind.log_prob is not base.log_prob  # pyright: ignore[reportPrivateUsage]


def parameter_of(design: Design) -> str:
    """How an estimator reads the scores: as logits, if the design accepts them."""
    return "logits" if "logits" in get(design).parameters else "scores"


def distribution_of(rows: Tensor, k: int, design: Design) -> KHotDistribution:
    """The design at these scores, with a gradient in them."""
    return cast("Any", get(design))(k, **{parameter_of(design): rows})


def inclusion_of(made: KHotDistribution) -> Tensor:
    """The inclusion probabilities, with a gradient in the scores; the true ones if π is approximate."""
    of_scores = made.exact_inclusion and "logits" not in made.parameters
    return made.probs if of_scores else made.mean  # in the dtype of the scores where that will do
