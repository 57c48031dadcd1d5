"""Capacity: the largest number of tokens per expert, and which tokens are dropped."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from khot.apps.moe._choice import check_range
from khot.apps.moe._masks import real_of
from khot.relaxations._plain_arguments import check_choice, check_integer, check_tensor, is_number

__all__ = ["Capped", "Drop", "apply_capacity", "check_capacity", "sorted_by_expert"]

Drop = Literal["probability", "position"]
_DROPS: tuple[str, ...] = get_args(Drop)


class Capped(NamedTuple):
    """The result of :func:`apply_capacity`.

    ``weights`` (T, k) are 0 where the pair of token and expert was dropped; ``kept`` (T, k) is False there.

    Example:
        >>> capped = apply_capacity(torch.ones(3, 1), torch.zeros(3, 1, dtype=torch.int64), 2, capacity=2)
        >>> capped.weights.flatten().tolist(), capped.kept.flatten().tolist()
        ([1.0, 1.0, 0.0], [True, True, False])
    """

    weights: Tensor
    kept: Tensor


def apply_capacity(
    weights: Tensor,
    indices: Tensor,
    num_experts: int,
    *,
    capacity: int | None = None,
    capacity_factor: float | None = None,
    drop: Drop = "probability",
    mask: Tensor | None = None,
) -> Capped:
    r"""Limit each expert to ``capacity`` tokens; the weights of the others become 0.

    With ``capacity_factor`` c the capacity is :math:`\lceil c\, k\, T / E \rceil`, where T counts only real
    tokens. Padding takes no slot. Give one of ``capacity`` and ``capacity_factor``. Cost: a sort of the T·k
    pairs.

    Args:
        weights: the weights (T, k) of a router.
        indices: its experts (T, k).
        num_experts: the number of experts.
        capacity: the largest number of tokens per expert, at least 1.
        capacity_factor: the capacity as a multiple of the even load, > 0.
        drop: ``"probability"`` drops the pairs with the smallest weights, ``"position"`` those of the last
            tokens; ties go by position.
        mask: True (or 1) for a real token.

    Returns:
        :class:`Capped`: the new weights, and which pairs are kept.

    Example:
        >>> weights = torch.tensor([[0.6], [0.9], [0.7]])
        >>> apply_capacity(weights, torch.zeros(3, 1, dtype=torch.int64), 2, capacity=2).weights.flatten()
        tensor([0.0000, 0.9000, 0.7000])
    """
    name = "apply_capacity"
    check_capacity(name, capacity, capacity_factor, drop)
    if capacity is None and capacity_factor is None:
        raise ValueError(f"{name}: give capacity or capacity_factor")
    check_tensor(name, "weights", weights)
    check_tensor(name, "indices", indices)
    check_integer(name, "num_experts", num_experts)
    if indices.dim() != 2 or weights.shape != indices.shape:
        raise ValueError(
            f"{name}: weights and indices must have one shape (tokens, k), "
            f"got {tuple(weights.shape)} and {tuple(indices.shape)}"
        )
    tokens, k = indices.shape
    check_range(name, indices, num_experts)
    real = real_of(name, mask, tokens)
    if capacity is not None:
        limit: Tensor | int = capacity
    else:
        assert capacity_factor is not None
        count = torch.tensor(tokens) if real is None else real.sum()
        # In float64: 1.1 · 10 slots are 11, not 12.
        share = (count.to(torch.float64) * (capacity_factor * k / num_experts)).mul(1 - 1e-12)
        limit = share.ceil().clamp_min(1).to(indices.device)
    experts = indices.reshape(-1)
    if real is not None:
        experts = torch.where(real.repeat_interleave(k), experts, num_experts)  # to the end, out of the way
    order = torch.arange(experts.shape[0], device=experts.device)
    if drop == "probability":
        order = weights.detach().reshape(-1).argsort(descending=True, stable=True)
    order = order[experts[order].argsort(stable=True)]
    _, starts = _bounds(experts, num_experts)
    place = torch.arange(order.shape[0], device=order.device)
    rank = place - starts[experts[order].clamp_max(num_experts - 1)]
    kept = torch.zeros_like(order, dtype=torch.bool)
    kept = kept.scatter(0, order, (rank < limit) & (experts[order] < num_experts)).view(tokens, k)
    return Capped(torch.where(kept, weights, 0), kept)


def sorted_by_expert(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """The order (P,) that groups pairs by expert, and the end of each expert's segment (experts,).

    ``experts`` (P,) may hold ``num_experts`` for pairs that are not computed: they come last.
    """
    ends, _ = _bounds(experts, num_experts)
    return experts.argsort(stable=True), ends


def check_capacity(name: str, capacity: int | None, capacity_factor: float | None, drop: str) -> None:
    """Check that at most one of capacity and factor is given, and in range."""
    if capacity is not None and capacity_factor is not None:
        raise ValueError(f"{name}: give capacity or capacity_factor, not both")
    if capacity is not None:
        check_integer(name, "capacity", capacity)
    if capacity_factor is not None and not (
        is_number(capacity_factor) and math.isfinite(capacity_factor) and capacity_factor > 0
    ):
        raise ValueError(f"{name}: capacity_factor must be a positive number, got {capacity_factor!r}")
    check_choice(name, "drop", drop, _DROPS)


def _bounds(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """Where places end and start for each expert, once they are sorted by it."""
    counts = torch.zeros(num_experts + 1, dtype=torch.int64, device=experts.device)
    counts = counts.scatter_add(0, experts, torch.ones_like(experts))
    ends = counts.cumsum(0)
    return ends[:-1], (ends - counts)[:-1]
