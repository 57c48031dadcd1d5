r"""Elementary symmetric polynomials of prefixes, for small k: k cumulative sums without a loop over n.

With :math:`e_j(w_1 … w_i)` in row i of table j,

.. math:: e_j(w_1 … w_i) = \sum_{l \le i} w_l\, e_{j-1}(w_1 … w_{l-1}),

so table j is one cumulative sum of the products of weights and table j − 1. The l-th term, divided by the
sum, is the probability that l is the last of j units drawn from the first i. So sampling is a search in each
table.

The tables are in linear space, so this works for weights for which :math:`e_j \le (\sum w)^j / j!` stays in
range; other weights use the product tree (`_symmetric_tree.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.kernels.availability import is_plain

__all__ = ["fits", "in_range", "log_polynomial", "sample"]

_SAFE = 600.0  # exp of it is well within the range of float64


def fits(t: Tensor, k: int, powers: int = 1) -> bool:
    """Whether the tables of exp(t), to that power, stay in range.

    Derivatives of higher order divide by powers of the polynomial. If values must not be read, the answer is
    no.
    """
    if not is_plain(t):
        return t.numel() == 0
    return in_range(t.detach().exp(), k, powers)


def in_range(w: Tensor, k: int, powers: int = 1) -> bool:
    """Like `fits`, given the weights w = exp(t)."""
    largest = float(w.sum(-1).max())
    return largest > 0 and k * math.log(largest) - math.lgamma(k + 1) < _SAFE / powers


def log_polynomial(t: Tensor, k: int) -> Tensor:
    """log e_k(exp t) of each row, shape (…)."""
    if k == 0:
        return t.sum(-1) * 0
    return _prefix_tables(t.exp(), k)[-1][..., -1].log()


def sample(
    w: Tensor,
    k: int,
    sample_shape: torch.Size,
    generator: torch.Generator | None,
    summands: Tensor | None = None,
) -> Tensor:
    """Increasing indices (*sample_shape, …, k), each set with probability ∝ the product of its weights.

    With ``summands`` in the shape of the weights, also ∝ the sum of its summands.
    """
    draws, uniforms = sample_shape.numel(), k if summands is None else 2 * k
    u = torch.rand((draws, *w.shape[:-1], uniforms), dtype=w.dtype, device=w.device, generator=generator)
    if cpu.usable(w) and u.numel():
        indices = cpu.subsets(w, u) if summands is None else cpu.weighted_subsets(w, summands, u)
    else:
        tables = _prefix_tables(w, k)
        sums = None if summands is None else (summands, _summed_tables(w, summands, tables))
        indices = _from_tables(tables, u.movedim(0, -2), sums).movedim(-2, 0)
    return indices.reshape(*sample_shape, *w.shape[:-1], k)


def _prefix_tables(w: Tensor, k: int) -> list[Tensor]:
    """Tables 1 … k of shape (…, n), entry i for the first i + 1 weights."""
    tables = [w.cumsum(-1)]
    for _ in range(k - 1):
        tables.append((w * _before(tables[-1])).cumsum(-1))
    return tables


def _summed_tables(w: Tensor, a: Tensor, tables: list[Tensor]) -> list[Tensor]:
    """Likewise, of sets weighted by the sum of their a as well: f_j = Σ_l w_l (f_{j−1} + a_l e_{j−1})."""
    sums = [(w * a).cumsum(-1)]
    for table in tables[:-1]:
        sums.append((w * (_before(sums[-1]) + a * _before(table))).cumsum(-1))
    return sums


def _before(table: Tensor) -> Tensor:
    """The entry before each, 0 before the first."""
    return torch.nn.functional.pad(table[..., :-1], (1, 0))


def _from_tables(
    tables: list[Tensor], u: Tensor, weighted: tuple[Tensor, list[Tensor]] | None = None
) -> Tensor:
    """Indices (…, draws, k) for u (…, draws, k); with summands and their tables from twice as many.

    One unit of a weighted set gives its summand. Until it is found the sets are weighted, then they are not.
    """
    k = len(tables)
    shape = u.shape[:-1]
    before = torch.full(shape, tables[0].shape[-1], dtype=torch.long, device=u.device)  # the first so many
    found = torch.full(shape, weighted is None, device=u.device)
    drawn: list[Tensor] = []
    for step, table in enumerate(reversed(tables)):
        share = u[..., step]
        if weighted is None:
            before = _last(table, before, share)
        else:
            a, sums = weighted
            j = k - 1 - step
            before = torch.where(found, _last(table, before, share), _last(sums[j], before, share))
            mine = a.gather(-1, before)
            rest = torch.zeros_like(mine)
            if j:
                mine = mine * _before(tables[j - 1]).gather(-1, before)
                rest = _before(sums[j - 1]).gather(-1, before)
            found = found | (u[..., k + step] * (mine + rest) < mine)
        drawn.append(before)
    return torch.stack(drawn[::-1], -1)


def _last(table: Tensor, before: Tensor, share: Tensor) -> Tensor:
    """The last unit of a set from the first so many, at a share in [0, 1) of the table."""
    total = table.gather(-1, (before - 1).clamp_min(0))
    # At u = 0 an impossible unit would do, and at total · u = total none is left.
    level = torch.minimum(total * share.clamp_min(2.0**-54), torch.nextafter(total, torch.zeros_like(total)))
    return torch.minimum(torch.searchsorted(table, level, right=True), (before - 1).clamp_min(0))
