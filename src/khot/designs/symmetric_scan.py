r"""Elementary symmetric polynomials of prefixes, for small k: k cumulative sums, and no loop over n.

With :math:`e_j(w_1 … w_i)` in row i of table j,

.. math:: e_j(w_1 … w_i) = \sum_{l \le i} w_l\, e_{j-1}(w_1 … w_{l-1}),

so table j is one cumulative sum of the products of weights and table j − 1. The l-th term, divided by the sum, is
the probability that l is the last of j units drawn from the first i: sampling is a search in each table.

In linear space, for weights for which :math:`e_j \le (\sum w)^j / j!` stays in range; others take the product tree
(`symmetric_tree.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.kernels.availability import is_plain

__all__ = ["fits", "log_polynomial", "prefix_tables", "sample_from_tables"]

_SAFE = 600.0  # exp of it is well within the range of float64


def fits(t: Tensor, k: int) -> bool:
    """Whether the tables of exp(t) stay in range; where values must not be looked at, the answer is no."""
    if not is_plain(t):
        return t.numel() == 0
    largest = float(t.detach().exp().sum(-1).max())
    return largest > 0 and k * math.log(largest) - math.lgamma(k + 1) < _SAFE


def log_polynomial(t: Tensor, k: int) -> Tensor:
    """log e_k(exp t) of each row, shape (…)."""
    if k == 0:
        return t.sum(-1) * 0
    w = t.exp()
    table = w.cumsum(-1)
    for _ in range(k - 1):
        table = (w * torch.nn.functional.pad(table[..., :-1], (1, 0))).cumsum(-1)
    return table[..., -1].log()


def prefix_tables(t: Tensor, k: int) -> Tensor:
    """Tables 1 … k, shape (k, …, n), entry i for the first i + 1 weights exp(t); without a graph."""
    w = t.detach().exp()
    tables = w.new_zeros((k, *w.shape[:-1], w.shape[-1] + 1))
    term = w.clone()
    for j in range(k):
        if j:
            torch.mul(w, tables[j - 1][..., :-1], out=term)
        torch.cumsum(term, -1, out=tables[j][..., 1:])
    return tables[..., 1:]


def sample_from_tables(tables: Tensor, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    """Increasing indices (*sample_shape, …, k), each set with probability ∝ the product of its weights."""
    k, n = tables.shape[0], tables.shape[-1]
    batch = tables.shape[1:-1]
    count = sample_shape.numel()
    before = torch.full((*batch, count), n, dtype=torch.long, device=tables.device)  # draw from the first …
    drawn: list[Tensor] = []
    for j in range(k - 1, -1, -1):
        table = tables[j]
        total = table.gather(-1, before - 1)
        u = torch.rand(before.shape, dtype=table.dtype, device=table.device, generator=generator)
        # At u = 0 an impossible unit would do, and at total · u = total none is left.
        level = torch.minimum(total * u.clamp_min(2.0**-54), torch.nextafter(total, torch.zeros_like(total)))
        before = torch.searchsorted(table.contiguous(), level, right=True)
        drawn.append(before)
    indices = torch.stack(drawn[::-1], -1).view(*batch, *sample_shape, k)
    return indices.movedim(
        tuple(range(len(batch), len(batch) + len(sample_shape))), tuple(range(len(sample_shape)))
    )
