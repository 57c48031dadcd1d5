"""A loss on the result of a beam search: the expected share of wrong tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.apps.beam.search import INTEGERS, BeamResult
from khot.kernels.availability import is_plain
from khot.relaxations._plain_arguments import check_tensor

__all__ = ["soft_hamming_loss"]


def soft_hamming_loss(
    result: BeamResult, targets: Tensor, mask: Tensor | None = None, *, rank: int = 0
) -> Tensor:
    r"""A soft Hamming distance between the hypothesis at ``rank`` and the targets: the mean of 1 − weight.

    As the temperature → 0 this becomes the share of wrong tokens of beam search. Unlike cross entropy, it
    depends only on what the search finds, so start from a model that was trained with cross entropy. Cost:
    O(B·T·(k·m + V)) for m candidates per step and V tokens.

    Args:
        result: the result of :func:`soft_beam_search`, with its gradient.
        targets: tokens (B, S). If S is larger than the number T of steps, positions beyond T count as wrong.
            Tokens found beyond S are ignored: include the end token in the targets, with ``pad`` after it.
        mask: (B, S), True for positions that count; by default all. Targets elsewhere may be any number.
        rank: the rank of the hypothesis; 0 is the best.

    Returns:
        The mean over all positions that count.

    Example:
        >>> from khot.apps.beam import soft_beam_search
        >>> table = torch.tensor([[0.1, 0.5, 0.4], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]]).log()
        >>> found = soft_beam_search(lambda t, h: (table[t], h), None, 2, start=0, max_length=3, hard=True)
        >>> soft_hamming_loss(found, torch.tensor([[2, 2, 1]]))
        tensor(0.3333)

    Reference: Goyal, Neubig, Dyer & Berg-Kirkpatrick (2018), arXiv:1708.00111.
    """
    name = "soft_hamming_loss"
    if not isinstance(result, BeamResult):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: result must be a BeamResult, got {type(result).__name__}")
    check_tensor(name, "targets", targets)
    if mask is not None:
        check_tensor(name, "mask", mask)
    if targets.dtype not in INTEGERS or targets.dim() != 2 or len(targets) != len(result.sequences):
        raise ValueError(
            f"{name}: targets must be tokens of shape ({len(result.sequences)}, places), "
            f"got {targets.dtype} of {tuple(targets.shape)}"
        )
    if mask is not None and (mask.shape != targets.shape or mask.dtype != torch.bool):
        raise ValueError(
            f"{name}: mask must be boolean of the shape of targets, {tuple(targets.shape)}, "
            f"got {mask.dtype} of {tuple(mask.shape)}"
        )
    targets = targets.long()
    if mask is not None:  # whatever marks the places that do not count
        targets = torch.where(mask, targets, 0)
    if is_plain(targets):
        low, high = targets.aminmax()
        if low < 0 or high >= result.vocabulary:
            raise ValueError(
                f"{name}: targets must be tokens in 0 … {result.vocabulary - 1}, "
                f"got {int(low)} to {int(high)}"
            )
    weights = result.token_weights(rank)
    steps = min(weights.shape[1], targets.shape[1])
    right = weights[:, :steps].gather(-1, targets[:, :steps].unsqueeze(-1)).squeeze(-1)
    right = torch.nn.functional.pad(right, (0, targets.shape[1] - steps))
    counts = torch.ones_like(right) if mask is None else mask.to(right.dtype)
    return ((1 - right) * counts).sum() / counts.sum().clamp_min(1)
