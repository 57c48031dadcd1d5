"""How much attention each token gets: the scores by which tokens are kept.

With a CLS token, a token's score is the attention of CLS to it, averaged over heads; without one, it is the
attention it receives from all tokens. Scores are logarithms: they have the same order, and their differences,
which the temperature divides, do not depend on the number of tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["log_attention", "masked_out"]


def masked_out(dtype: torch.dtype) -> float:
    """A bias that gives a token no attention, and stays finite when another bias is added."""
    return torch.finfo(dtype).min / 4


def log_attention(queries: Tensor, keys: Tensor, scale: float, bias: Tensor | None, from_cls: bool) -> Tensor:
    r"""The logarithm of the attention that each token gets, averaged over heads (and over queries).

    .. math:: s_j = \log \frac1H \sum_h \operatorname{softmax}_j(q_{h0} \cdot k_{hj}\,\mathrm{scale} + b_j)

    Args:
        queries: (B, H, 1, d), the query of CLS, or (B, H, N, d), all queries.
        keys: (B, H, N, d).
        scale: the factor of the products.
        bias: (B, N), added for each key: log-weights. Queries are averaged with the same weights.
        from_cls: whether ``queries`` is only the query of CLS.

    Returns:
        (B, N), in float32 or float64.
    """
    dtype = torch.float64 if keys.dtype == torch.float64 else torch.float32
    logits = (queries @ keys.transpose(-2, -1)).to(dtype) * scale
    if bias is not None:
        logits = logits + bias.to(dtype)[:, None, None, :]
    logarithms = logits.log_softmax(-1)
    heads = keys.shape[1]
    if from_cls or bias is None:
        count = heads * queries.shape[-2]
        return logarithms.flatten(1, 2).logsumexp(1) - math.log(count)
    weighted = logarithms + bias.to(dtype)[:, None, :, None]
    total = bias.to(dtype).logsumexp(-1, keepdim=True)
    return weighted.flatten(1, 2).logsumexp(1) - total - math.log(heads)
