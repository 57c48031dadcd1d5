"""Choose experts: by the largest scores, within groups, round robin, or as recorded before."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.apps.moe._rule import Rule
from khot.apps.moe._scores import scores_of
from khot.kernels.availability import is_plain
from khot.relaxations._plain_arguments import check_tensor
from khot.relaxations.entries import topk_entries

__all__ = ["allowed_experts", "best_experts", "check_range", "checked_replay", "experts_in_turn"]


def best_experts(choice: Tensor, k: int, allowed: Tensor | None = None) -> Tensor:
    """Indices (T, k) of the largest of each row, best first, ties by index."""
    return topk_entries(choice.detach(), k, hard=True, mask=allowed).indices


def allowed_experts(choice: Tensor, rule: Rule, given: Tensor | None = None) -> Tensor | None:
    """True (T, experts) for the experts of each token's best groups; None if groups do not matter.

    The groups of ``given`` experts (T, k) rank before all others, so none of them is excluded.
    """
    if not rule.limits_groups:
        return None
    grouped = choice.detach().reshape(choice.shape[0], rule.num_groups, -1)
    best = 1 if rule.group_score == "max" else 2
    groups = grouped.topk(best, dim=-1).values.sum(-1)
    size = rule.num_experts // rule.num_groups
    kept = torch.zeros_like(groups, dtype=torch.bool)
    if given is not None:
        kept = kept.scatter(-1, given // size, True)
        groups = groups.masked_fill(kept, torch.inf)
    kept = kept.scatter(-1, best_experts(groups, rule.kept_groups), True)
    return kept.repeat_interleave(size, dim=-1)


def choice_scores(logits: Tensor, rule: Rule, bias: Tensor | None) -> Tensor:
    """The numbers that rank experts: scores plus correction bias, or the logits if the order is the same."""
    if bias is None and not rule.limits_groups:
        return logits.detach()
    scores = scores_of(logits.detach(), rule.score)
    return scores if bias is None else scores + bias


def experts_in_turn(tokens: int, rule: Rule, mask: Tensor | None, device: torch.device) -> Tensor:
    """Assign experts round robin, whatever the logits: each token gets the next k."""
    # Padding takes no turn.
    number = torch.arange(tokens, device=device) if mask is None else mask.cumsum(0) - 1
    slots = number.unsqueeze(-1) * rule.k + torch.arange(rule.k, device=device)
    return slots % rule.num_experts


def checked_replay(name: str, indices: Tensor, tokens: int, rule: Rule) -> Tensor:
    """Recorded indices as int64 (T, k), checked."""
    if not isinstance(indices, Tensor) or indices.is_floating_point() or indices.dtype == torch.bool:  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = indices.dtype if isinstance(indices, Tensor) else type(indices).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: indices must be a tensor of integers, got {kind}")
    flat = indices.reshape(-1, indices.shape[-1]) if indices.dim() > 2 else indices
    if tuple(flat.shape) != (tokens, rule.k):
        raise ValueError(
            f"{name}: indices must have the shape (tokens, k) = {(tokens, rule.k)}, "
            f"got {tuple(indices.shape)}"
        )
    check_range(name, flat, rule.num_experts)
    return flat.to(torch.int64)


def check_range(name: str, indices: Tensor, num_experts: int) -> None:
    """Raise if an index is not that of an expert, if values can be read without a device synchronisation."""
    check_tensor(name, "indices", indices)
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise TypeError(f"{name}: indices must be integers, got {indices.dtype}")
    if is_plain(indices):
        low, high = (end.item() for end in indices.aminmax())
        if low < 0 or high >= num_experts:
            raise ValueError(f"{name}: indices must be in [0, {num_experts - 1}], got {low} to {high}")
