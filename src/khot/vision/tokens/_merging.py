"""Merge similar tokens instead of dropping any: the baseline of Bolya et al. (2023), from its description.

Tokens are assigned alternately to two sets. Each token of the first set is matched with the token of the
second set whose key is most similar (cosine). The best matches are merged, by an average weighted with the
number of patches that each token stands for. One round can at most halve the tokens; rounds are repeated as
needed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["Merged", "merge"]


class Merged(NamedTuple):
    """The merged ``tokens`` (B, k, C), their ``sizes`` (B, k) in patches, and their ``indices`` (B, k)."""

    tokens: Tensor
    sizes: Tensor
    indices: Tensor


def merge(tokens: Tensor, keys: Tensor, sizes: Tensor, k: int) -> Merged:
    """Merge tokens until ``k`` are left.

    Args:
        tokens: (B, n, C).
        keys: (B, n, d), the keys of the attention, averaged over heads, by which tokens are compared.
        sizes: (B, n), the number of patches that each token stands for; 0 for padding, which is merged first
            and changes nothing.
        k: how many tokens to leave, 1 ≤ k ≤ n.

    Returns:
        :class:`Merged`; the indices are those of the tokens into which others were merged.

    Reference: Bolya et al. (2023), Token Merging: Your ViT But Faster, arXiv:2210.09461.
    """
    indices = torch.arange(tokens.shape[1], device=tokens.device).expand(sizes.shape)
    while tokens.shape[1] > k:
        tokens, keys, sizes, indices = _one_round(tokens, keys, sizes, indices, k)
    return Merged(tokens, sizes, indices)


def _one_round(
    tokens: Tensor, keys: Tensor, sizes: Tensor, indices: Tensor, k: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n = tokens.shape[1]
    merged = min(n - k, n // 2)
    units = normalize(keys.detach().float(), dim=-1)
    first, second = slice(1, None, 2), slice(0, None, 2)
    similarity = units[:, first] @ units[:, second].transpose(-2, -1)
    similarity = torch.where((sizes[:, second] > 0).unsqueeze(1), similarity, -2)
    strength, partner = similarity.max(-1)
    strength = torch.where(sizes[:, first] > 0, strength, math.inf)
    order = strength.argsort(dim=-1, descending=True, stable=True)
    going, staying = order[:, :merged], order[:, merged:]
    into = partner.gather(1, going)

    def joined(values: Tensor) -> Tensor:
        """Sums (B, n − merged, …) of values (B, n, …): merged values are added to their partners."""
        old, new = values[:, first], values[:, second]
        return torch.cat([_rows(old, staying), _added(new, into, _rows(old, going))], 1)

    total = joined(sizes.unsqueeze(-1))
    share = total.clamp_min(1)
    weights = sizes.unsqueeze(-1)
    left = torch.cat([indices[:, first].gather(1, staying), indices[:, second]], 1)
    tokens = joined(tokens * weights.to(tokens.dtype)) / share.to(tokens.dtype)
    keys = joined(keys * weights.to(keys.dtype)) / share.to(keys.dtype)
    return tokens, keys, total.squeeze(-1), left


def _rows(values: Tensor, places: Tensor) -> Tensor:
    return values.gather(1, places.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def _added(values: Tensor, places: Tensor, terms: Tensor) -> Tensor:
    return values.scatter_add(1, places.unsqueeze(-1).expand(terms.shape), terms)
