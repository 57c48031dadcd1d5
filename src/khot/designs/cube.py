r"""The cube method: draws whose Horvitz–Thompson totals of given variables are (nearly) the true totals.

A draw is a corner of the cube [0, 1]ⁿ and π is a point in it. A balanced draw stays in the subspace
:math:`\sum_i (X_i / \pi_i)\, s_i = \sum_i X_i`. *Flight* (Chauvet & Tillé 2006): a window of p + 1 units
always has a direction within the subspace. Move along it, to one side or the other with probabilities that
keep the mean, until a unit reaches 0 or 1; then the next unit enters the window. *Landing*: when too few
units are left for a direction, constraints are dropped, the last variable first. The sum is kept longest, and
two units always have a direction that keeps it, so exactly k units are drawn.

Cost of a draw: at most n steps of O(p³), in compiled code or vectorised over draws.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from khot.designs._random_order import random_order
from khot.designs.base import KHotDistribution
from khot.kernels import cpu
from khot.relaxations._chunks import chunks
from khot.relaxations._plain_arguments import check_floating

__all__ = ["Cube"]

_AT_ONCE = 1 << 21  # entries of orders in memory at a time
# What is left of a constraint after projection, or of a unit after a step, and counts as nothing.
_NOTHING = 1e-10
_AS_LARGE = 1 - 1e-6


class Cube(KHotDistribution):
    r"""Balanced sampling: exact π, exactly k units, and nearly exact totals of the ``balance`` variables.

    .. math:: \sum_{i \in s} \frac{X_i}{\pi_i} \approx \sum_i X_i, \qquad P(i \in s) = \pi_i

    The deviation from balance comes from the last p units only, so relative to the total it falls as k grows.
    Units are processed in random order. The probabilities of sets have no closed form. R: ``samplecube`` with
    π among the variables. Cost of a draw: at most n steps of O(p³).

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        balance: auxiliary variables X, shape (…, n, p), the most important one first; a constant column
            balances the estimate of n. Balance on π itself, the fixed size, is always included.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> income = torch.linspace(1.0, 3.0, 100, dtype=torch.float64)
        >>> design = Cube(20, probs=torch.full((100,), 0.2, dtype=torch.float64), balance=income[:, None])
        >>> x = design.sample((50,), generator=torch.Generator().manual_seed(0))
        >>> x.sum(-1).unique(), ((x * income / 0.2).sum(-1) / income.sum() - 1).abs().max() < 0.05
        (tensor([20.], dtype=torch.float64), tensor(True))

    Reference: Deville & Tillé (2004), Efficient Balanced Sampling: The Cube Method; Chauvet & Tillé (2006), A
    Fast Algorithm for Balanced Sampling.
    """

    def __init__(
        self,
        k: float,
        *,
        balance: Tensor,
        probs: Tensor | None = None,
        scores: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        check_floating("Cube", "balance", balance)
        super().__init__(k, probs=probs, scores=scores, validate_args=validate_args)
        if balance.dim() < 2 or balance.shape[-2] != self.n:
            raise ValueError(
                f"Cube: balance must be floating-point of shape (…, {self.n}, p), "
                f"got {balance.dtype} of shape {tuple(balance.shape)}"
            )
        if self._validate_args and not bool(balance.isfinite().all()):
            raise ValueError("Cube: balance must be finite")
        self._balance = balance.detach().double()

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        k, n = int(self.k), self.n
        shape = sample_shape + self.batch_shape
        rows = self.batch_shape.numel()
        pi = self._inclusion.detach().reshape(rows, n)
        p = self._balance.shape[-1]
        columns = _columns(pi, self._balance.expand(*self.batch_shape, n, p).reshape(rows, n, p))
        row = torch.arange(rows, device=pi.device).repeat(sample_shape.numel())
        drawn = torch.empty(len(row), k, dtype=torch.long, device=pi.device)
        for part in chunks(len(row), n * (2 + p), _AT_ONCE):
            x = _land(pi[row[part]], columns[row[part]], generator)
            drawn[part] = x.nonzero()[:, -1].view(len(x), k)
        return drawn.view(*shape, k)

    def expand(self, batch_shape: torch.Size | tuple[int, ...], _instance: Any = None) -> Any:
        """The same design for a larger batch.

        Args:
            batch_shape: the new batch shape, to which the old one must broadcast.
        """
        new = super().expand(batch_shape, _instance)
        new._balance = self._balance
        return new

    def _no_closed_form(self) -> str:
        return "has no closed form for this design; use samples, or ConditionalPoisson"


def _columns(pi: Tensor, variables: Tensor) -> Tensor:
    """Each unit's column of the constraints (rows, n, p + 1), the sum first; 0 where nothing is random."""
    columns = torch.cat(
        [torch.ones_like(pi).unsqueeze(-1), variables / pi.clamp_min(1e-300).unsqueeze(-1)], -1
    )
    columns = torch.where(((pi > 0) & (pi < 1)).unsqueeze(-1), columns, 0.0)
    return columns / columns.abs().amax(-2, keepdim=True).clamp_min(1e-300)


def _land(pi: Tensor, columns: Tensor, generator: torch.Generator | None) -> Tensor:
    """k-hot booleans (rows, n) from probabilities (rows, n) and their columns."""
    rows, n = pi.shape
    order = random_order((rows, n), pi.device, generator)
    closed = ((pi <= 0) | (pi >= 1)).gather(-1, order).to(torch.uint8)
    order = order.gather(-1, torch.sort(closed, dim=-1, stable=True).indices)
    u = torch.rand((rows, n), dtype=torch.float64, device=pi.device, generator=generator)
    if cpu.usable(pi, columns, u):
        return cpu.cube(pi, columns, order.unsqueeze(0), u.unsqueeze(0)).squeeze(0)
    return _fly(pi, columns, order, u)


def _fly(pi: Tensor, columns: Tensor, order: Tensor, u: Tensor) -> Tensor:
    """The same, for units in this order and a uniform variable for each step, which are at most n."""
    rows, n = pi.shape
    # Places beyond the units are those of a unit n, which is nothing and never moves.
    order = torch.nn.functional.pad(order, (0, 1), value=n)
    columns = torch.nn.functional.pad(columns, (0, 0, 0, 1))
    count = ((pi > 0) & (pi < 1)).sum(-1, keepdim=True)
    width = min(columns.shape[-1] + 1, n)
    place = torch.arange(width, device=pi.device).expand(rows, width)
    following = torch.full_like(count, width)
    x = torch.nn.functional.pad(pi, (0, 1))
    for step in range(n):
        present = place < count
        moving = present.sum(-1, keepdim=True) > 1
        if not bool(moving.any()):
            break
        unit = order.gather(-1, place.clamp_max(n))
        value = x.gather(-1, unit)
        window = columns.gather(1, unit.unsqueeze(-1).expand(rows, width, columns.shape[-1]))
        direction = _direction(window, present)
        value = torch.where(present & moving, _step(value, direction, u[:, step : step + 1]), value)
        x.scatter_(-1, unit, value)
        settled = present & ((value == 0) | (value == 1))
        # A settled unit's place in the window is taken by the next unit, as long as there is one.
        rank = settled.cumsum(-1)
        place = torch.where(settled, following + rank - 1, place)
        following = following + rank[..., -1:]
    return x[..., :n] > 0.5


def _direction(window: Tensor, present: Tensor) -> Tensor:
    """A direction (rows, width) within as many leading constraints (rows, width, p + 1) as leave one.

    They are projected out one after the other. In flight the window is wider than the constraints are many,
    and they all leave one; in landing one that would leave nothing is skipped.
    """
    rows, width, constraints = window.shape
    space = torch.diag_embed(present.to(window.dtype))
    dimension = present.sum(-1)
    for j in range(constraints):
        row = torch.where(present, window[..., j], 0.0)
        rest = (space @ row.unsqueeze(-1)).squeeze(-1)
        rest = (space @ rest.unsqueeze(-1)).squeeze(-1)  # twice is enough for orthogonality
        size, whole = rest.square().sum(-1), row.square().sum(-1)
        binds = (size > _NOTHING**2 * whole) & (dimension > 1)
        unit = rest / size.clamp_min(1e-300).sqrt().unsqueeze(-1)
        cut = space - unit.unsqueeze(-1) * unit.unsqueeze(-2)
        space = torch.where(binds.view(rows, 1, 1), cut, space)
        dimension = dimension - binds.long()
    spread = space.diagonal(dim1=-2, dim2=-1)
    # The first of those that are as large but for rounding: the way it points is then the same everywhere.
    largest = (spread >= _AS_LARGE * spread.amax(-1, keepdim=True)).to(torch.uint8).argmax(-1)
    return _cleaned(space.gather(-1, largest.view(rows, 1, 1).expand(rows, width, 1)).squeeze(-1))


def _cleaned(chosen: Tensor) -> Tensor:
    """Without the entries that are nothing but rounding: such a unit would be at its edge far from here."""
    return torch.where(chosen.abs() > _NOTHING * chosen.abs().amax(-1, keepdim=True), chosen, 0.0)


def _step(value: Tensor, direction: Tensor, u: Tensor) -> Tensor:
    """Go along the direction until a unit is 0 or 1, one way or the other, so that the mean stays."""
    moving = direction != 0
    speed = torch.where(moving, direction.abs(), 1.0)
    room_up, room_down = 1 - value, value
    forward = torch.where(moving, torch.where(direction > 0, room_up, room_down) / speed, torch.inf)
    backward = torch.where(moving, torch.where(direction > 0, room_down, room_up) / speed, torch.inf)
    ahead, behind = forward.amin(-1, keepdim=True), backward.amin(-1, keepdim=True)
    ahead, behind = ahead.nan_to_num(posinf=0.0), behind.nan_to_num(posinf=0.0)
    goes_ahead = u * (ahead + behind) < behind
    moved = value + torch.where(goes_ahead, ahead, -behind) * direction
    # The unit that stops the step is exactly 0 or 1, and so is any that is there but for rounding.
    stops = torch.where(goes_ahead, forward == ahead, backward == behind) & moving
    near = (moved - moved.round()).abs() < _NOTHING
    return torch.where(stops | (near & moving), moved.round(), moved)
