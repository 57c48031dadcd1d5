"""The padding mask: which tokens are real."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from khot.kernels.availability import has_values
from khot.relaxations._plain_arguments import check_tensor

__all__ = ["KnowsPadding", "real_of", "real_tokens"]


class KnowsPadding(nn.Module):
    """A router that can be told which tokens are real if its caller passes no mask."""

    token_mask: Tensor | None = None
    """See :func:`khot.apps.moe.mask_padding`."""


def real_tokens(name: str, mask: Tensor | None, shape: torch.Size | tuple[int, ...]) -> Tensor | None:
    """The mask as booleans (T,), True for a real token; None if there is none.

    ``mask`` has the tokens' own ``shape``, or is flat already; booleans, or zeros and ones of any dtype.
    """
    if mask is None:
        return None
    check_tensor(name, "mask", mask)
    flat = torch.Size(shape).numel()
    if tuple(mask.shape) not in (tuple(shape), (flat,)):
        raise ValueError(
            f"{name}: mask must have the shape of the tokens, {tuple(shape)} (True where a token is real), "
            f"got {tuple(mask.shape)}"
        )
    if mask.dtype == torch.bool:
        return mask.reshape(-1)
    if has_values() and not mask.is_meta:
        wrong = mask[(mask != 0) & (mask != 1)]
        if wrong.numel():
            raise ValueError(
                f"{name}: mask must be boolean, or 1 for a real token and 0 for padding, "
                f"got the value {wrong[0].item()}; an additive mask is `mask == 0`"
            )
    return (mask != 0).reshape(-1)


def real_of(name: str, mask: Tensor | None, tokens: int) -> Tensor | None:
    """The same for ``tokens`` tokens, whose original shape is that of the mask."""
    if mask is None:
        return None
    check_tensor(name, "mask", mask)
    return real_tokens(name, mask, mask.shape if mask.numel() == tokens else (tokens,))
