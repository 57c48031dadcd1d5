r"""Elementary symmetric polynomials for large k: a product tree of polynomials truncated at degree k.

Leaves are (1 − p, p) with p = σ(t). Each node holds the distribution of how many of its units are drawn by
independent gates, so the root's coefficient k is about 1/√(2πΣp(1 − p)) and nothing underflows. Sampling goes
down the tree: a node's quota q is split with probability ∝ L[j] R[q − j]. Cost: O(n log² k) in log n steps.
"""

# torch.fft has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import torch
from torch import Tensor

from khot.relaxations._special import softplus

__all__ = ["log_polynomial", "product_tree", "sample_from_tree"]

_DIRECT = 64  # narrower polynomials are multiplied out, wider ones by FFT


def product_tree(t: Tensor, k: int) -> list[Tensor]:
    """Coefficients of all nodes, (…, nodes, width), leaves first."""
    n = t.shape[-1]
    leaves = 1 << max(0, n - 1).bit_length()
    fixed = t.detach()
    # The gates are constants and the gradient goes through exp(t − stop t) alone: then every term of a
    # derivative is positive, where differentiating 1 − p as well would cancel.
    p = torch.sigmoid(fixed) * torch.exp(t - fixed)
    p = torch.nn.functional.pad(p, (0, leaves - n))
    q = torch.nn.functional.pad(torch.sigmoid(-fixed), (0, leaves - n), value=1.0)
    levels = [torch.stack([q, p], -1)]
    while levels[-1].shape[-2] > 1:
        nodes = levels[-1]
        levels.append(_multiply(nodes[..., 0::2, :], nodes[..., 1::2, :], k + 1))
    return levels


def log_polynomial(t: Tensor, k: int) -> Tensor:
    """log e_k(exp t) of each row, shape (…)."""
    root = product_tree(t, k)[-1][..., 0, k]
    return root.log() + softplus(t.detach()).sum(-1)


def _multiply(left: Tensor, right: Tensor, most: int) -> Tensor:
    width = left.shape[-1]
    full = 2 * width - 1
    if width <= _DIRECT:
        outer = left.unsqueeze(-1) * right.unsqueeze(-2)
        # Row i of the outer product moved i places to the right, by a change of the row length.
        sheared = torch.nn.functional.pad(outer, (0, width)).flatten(-2)[..., : width * full]
        return sheared.unflatten(-1, (width, full)).sum(-2)[..., :most]
    size = 1 << (full - 1).bit_length()
    product = torch.fft.irfft(torch.fft.rfft(left, size) * torch.fft.rfft(right, size), size)
    return product[..., : min(full, most)].clamp_min(0)


def sample_from_tree(
    levels: list[Tensor], k: int, sample_shape: torch.Size, generator: torch.Generator | None
) -> Tensor:
    """Booleans (*sample_shape, …, leaves), each set with probability ∝ the product of its weights."""
    batch = levels[0].shape[:-2]
    quota = torch.full((*sample_shape, *batch, 1), k, dtype=torch.long, device=levels[0].device)
    for nodes in reversed(levels[:-1]):
        left, right = nodes[..., 0::2, :], nodes[..., 1::2, :]
        width = left.shape[-1]
        given = quota.unsqueeze(-1) - torch.arange(
            width, device=quota.device
        )  # what is left for the right child
        fits = (given >= 0) & (given < width)
        partner = right.expand(*quota.shape, width).gather(-1, given.clamp(0, width - 1))
        weights = torch.where(fits, left * partner, 0.0).cumsum(-1)
        total = weights[..., -1:]
        u = torch.rand(total.shape, dtype=total.dtype, device=total.device, generator=generator)
        level = torch.minimum(total * u, torch.nextafter(total, torch.zeros_like(total)))
        to_left = torch.searchsorted(weights, level, right=True).squeeze(-1)
        # A quota of 0, and one of all units, leaves no choice, also where rounding left no weight.
        to_left = torch.minimum(torch.minimum(to_left, quota), torch.tensor(width - 1))
        to_left = torch.maximum(to_left, quota - (width - 1))
        quota = torch.stack([to_left, quota - to_left], -1).flatten(-2)
    return quota > 0
