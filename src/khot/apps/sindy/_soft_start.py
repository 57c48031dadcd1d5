r"""A start for the exchange by soft top-k: the perspective relaxation of best subset, gradually sharpened.

With weights z in the capped simplex, :math:`\sum_j z_j = k`, the ridge problem in which term j costs
:math:`c_j^2 / z_j` has the fitted share

.. math:: b^\top Z^{1/2} (\lambda I + Z^{1/2} G Z^{1/2})^{-1} Z^{1/2} b,

a smooth function of z = ``sigmoid_topk(scores, k, temperature)``. Adam maximises it while temperature and
ridge fall; the k largest scores are the start. Cost: O(p³) per step, for all equations at once.

Reference: Bertsimas, Pauphilet & Van Parys (2020), Sparse Regression: Scalable Algorithms and Empirical
Performance; Wijk, Vinuesa & Azizpour (2025).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Sequence

import torch

from khot.apps._learning import learning
from khot.apps.sindy._equations import Equations
from khot.relaxations import sigmoid_topk

__all__ = ["soft_starts"]

_STEPS, _RATE = 100, 0.1
_TEMPERATURES, _RIDGES = (1.0, 0.02), (1e-1, 1e-6)


def soft_starts(equations: Equations, which: Sequence[int], ks: Sequence[int]) -> list[tuple[int, ...]]:
    """For each i, a start with ks[i] terms for the equation which[i]."""
    with learning():
        return _soft_starts(equations, which, ks)


def _soft_starts(equations: Equations, which: Sequence[int], ks: Sequence[int]) -> list[tuple[int, ...]]:
    columns = torch.from_numpy(equations.columns)
    gram = columns.T @ columns
    sides = torch.from_numpy(equations.targets[:, list(which)]).T @ columns
    scores = torch.zeros_like(sides, requires_grad=True)
    counts = torch.tensor(ks, dtype=sides.dtype)
    optimizer = torch.optim.Adam([scores], lr=_RATE)
    identity = torch.eye(len(gram), dtype=sides.dtype)
    for step in range(_STEPS):
        done = step / (_STEPS - 1)
        temperature, ridge = (first * (last / first) ** done for first, last in (_TEMPERATURES, _RIDGES))
        root = sigmoid_topk(scores, counts, temperature=temperature).clamp_min(1e-12).sqrt()
        side = (root * sides).unsqueeze(-1)
        system = root.unsqueeze(-1) * gram * root.unsqueeze(-2) + ridge * identity
        fitted = (side * torch.linalg.solve(system, side)).sum((-2, -1))
        loss = (1 - fitted).clamp_min(1e-12).log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    order = scores.detach().argsort(descending=True, stable=True)
    return [tuple(sorted(row[:k].tolist())) for row, k in zip(order, ks, strict=True)]
