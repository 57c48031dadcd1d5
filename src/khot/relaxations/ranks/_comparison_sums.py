r"""Sums of all comparisons at many points, in nearly linear time:

    R(t) = Σ_j σ(z_j − t),      D(t) = Σ_j σ′(z_j − t) v_j.

As functions of t they are smooth, whatever the scores are: the poles of σ are π away from the real line. On
an interval of length 1, the Chebyshev series with M terms therefore has a relative error below
(2π + √(4π² + 1))^{−M} ≈ 12.6^{−M}; for M = 14 that is the last digits of float64. So the sums are computed at
the 14 Chebyshev points of each interval that holds a score, and interpolated at all scores in it. Scores
farther away than `_FAR` compare as 0 or 1 to the last digit; they are only counted.

Cost: a sort, and 14 comparisons for each interval with each score near it. That is far less than n² if many
scores share an interval. Otherwise the functions return None, and all pairs are compared.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor

from khot.relaxations._chunks import chunks

__all__ = ["MANY", "slope_sums", "step_sums"]

MANY = 2048  # scores in a row, below which it does not pay
_TERMS = 14
_FAR = 38.0  # σ′ there is 3e-17
_INTERVAL = 20_000  # comparisons that take as long as what is done once an interval
_AT_ONCE = 1 << 18  # numbers in memory at a time


def step_sums(z: Tensor) -> Tensor | None:
    """R(z_i) at each i of rows (…, n), or None if comparing all pairs is faster."""
    return _by_rows(z, None)


def slope_sums(z: Tensor, v: Tensor) -> Tensor | None:
    """Σ_j σ′(z_j − z_i)(v_j − v_i) at each i of rows (…, n), or None if comparing all pairs is faster."""
    return _by_rows(z, v)


def _by_rows(z: Tensor, v: Tensor | None) -> Tensor | None:
    result = torch.empty_like(z)
    rows = z.reshape(-1, z.shape[-1])
    others = None if v is None else v.reshape(rows.shape)
    found = result.view(rows.shape)
    for r, row in enumerate(rows):
        sums = _row(row.double(), None if others is None else others[r].double())
        if sums is None:
            return None
        found[r] = sums
    return result


def _row(z: Tensor, v: Tensor | None) -> Tensor | None:
    n = len(z)
    ascending = z.sort()
    sources = ascending.values
    begins, cell = cast("tuple[Tensor, Tensor]", z.floor().unique(return_inverse=True))  # pyright: ignore[reportUnknownMemberType]
    first = torch.searchsorted(sources, begins - _FAR)
    end = torch.searchsorted(sources, begins + 1 + _FAR, right=True)
    work = _TERMS * int((end - first).sum()) + _INTERVAL * len(begins)
    if work > n * n // 2:
        return None
    if v is None:
        factors = None
    else:
        centred = v - v.mean()  # which cancels, and would cost digits
        factors = torch.stack((centred, torch.ones_like(centred)), -1)[ascending.indices]
    angles = math.pi * (torch.arange(_TERMS, dtype=torch.float64) + 0.5) / _TERMS
    points = angles.cos() / 2 + 0.5
    at_points: list[Tensor] = []
    parts = torch.stack((first, end), -1)
    for begin, part in zip(begins, parts, strict=True):
        i, j = int(part[0]), int(part[1])
        step = torch.sigmoid((sources[i:j] - begin) - points.unsqueeze(-1))
        at_points.append(_sums(step, n - j, None if factors is None else factors[i:j]))
    # Of the values at the points, their Chebyshev coefficients, and of these the sums.
    orders = torch.arange(_TERMS, dtype=torch.float64)
    to_series = torch.cos(orders.unsqueeze(-1) * angles) * (2 / _TERMS)
    to_series[0] /= 2
    series = to_series @ torch.stack(at_points)
    place = (2 * (z - begins[cell]) - 1).clamp(-1, 1).acos()
    sums = z.new_empty(n, series.shape[-1])
    for part in chunks(n, _TERMS * series.shape[-1], _AT_ONCE):
        polynomials = torch.cos(place[part].unsqueeze(-1) * orders).unsqueeze(-2)
        sums[part] = (polynomials @ series[cell[part]]).squeeze(-2)
    return sums[:, 0] if v is None else sums[:, 0] - (v - v.mean()) * sums[:, 1]


def _sums(step: Tensor, above: int, factors: Tensor | None) -> Tensor:
    """Over the scores near an interval, (points, 1) or (points, 2): of R, or of D with v and with ones."""
    if factors is None:
        return step.sum(-1, keepdim=True) + above
    return (step * (1 - step)) @ factors
