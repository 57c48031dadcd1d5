r"""Elementary symmetric polynomials of prefixes, for small k: k cumulative sums, and no loop over n.

With :math:`e_j(w_1 … w_i)` in row i of table j,

.. math:: e_j(w_1 … w_i) = \sum_{l \le i} w_l\, e_{j-1}(w_1 … w_{l-1}),

so table j is one cumulative sum of the products of weights and table j − 1. The l-th term, divided by the
sum, is the probability that l is the last of j units drawn from the first i: sampling is a search in each
table.

In linear space, for weights for which :math:`e_j \le (\sum w)^j / j!` stays in range; others take the
product tree (`_symmetric_tree.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.kernels.availability import is_plain

__all__ = ["fits", "log_polynomial", "sample"]

_SAFE = 600.0  # exp of it is well within the range of float64


def fits(t: Tensor, k: int, powers: int = 1) -> bool:
    """Whether the tables of exp(t), to that power, stay in range.

    Derivatives of higher order divide by powers of the polynomial. Where values must not be looked at, the
    answer is no.
    """
    if not is_plain(t):
        return t.numel() == 0
    largest = float(t.detach().exp().sum(-1).max())
    return largest > 0 and k * math.log(largest) - math.lgamma(k + 1) < _SAFE / powers


def log_polynomial(t: Tensor, k: int) -> Tensor:
    """log e_k(exp t) of each row, shape (…)."""
    if k == 0:
        return t.sum(-1) * 0
    return _prefix_tables(t.exp(), k)[-1][..., -1].log()


def sample(t: Tensor, k: int, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    """Increasing indices (*sample_shape, …, k), each set with probability ∝ exp of the sum of its t."""
    w = t.detach().exp()
    u = torch.rand(
        (sample_shape.numel(), *w.shape[:-1], k), dtype=w.dtype, device=w.device, generator=generator
    )
    if cpu.usable(w) and u.numel():
        indices = cpu.subsets(w, u)
    else:
        indices = _from_tables(_prefix_tables(w, k), u.movedim(0, -2)).movedim(-2, 0)
    return indices.reshape(*sample_shape, *w.shape[:-1], k)


def _prefix_tables(w: Tensor, k: int) -> list[Tensor]:
    """Tables 1 … k of shape (…, n), entry i for the first i + 1 weights."""
    tables = [w.cumsum(-1)]
    for _ in range(k - 1):
        tables.append((w * torch.nn.functional.pad(tables[-1][..., :-1], (1, 0))).cumsum(-1))
    return tables


def _from_tables(tables: list[Tensor], u: Tensor) -> Tensor:
    """Indices in the shape of u, (…, draws, k)."""
    before = torch.full(
        u.shape[:-1], tables[0].shape[-1], dtype=torch.long, device=u.device
    )  # the first so many
    drawn: list[Tensor] = []
    for table, share in zip(reversed(tables), u.unbind(-1), strict=True):
        total = table.gather(-1, before - 1)
        # At u = 0 an impossible unit would do, and at total · u = total none is left.
        level = torch.minimum(
            total * share.clamp_min(2.0**-54), torch.nextafter(total, torch.zeros_like(total))
        )
        before = torch.searchsorted(table, level, right=True)
        drawn.append(before)
    return torch.stack(drawn[::-1], -1)
