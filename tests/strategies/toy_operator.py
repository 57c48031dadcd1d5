"""A soft top-k written for tests alone: bisection in float64, then Newton steps for the derivatives.

Shares nothing with khot's operators. Slow, and right wherever the contract looks.
"""

import math

import torch
from torch import Tensor

from khot.relaxations import Relaxation, hard_topk

HALVINGS = 64
NEWTON = 3  # each doubles the order to which derivatives are exact: 3 give seven


def toy_topk(x, k, *, temperature=1.0, dim=-1, mask=None, hard=False):
    """σ((x + c)/τ) with Σ = min(k, allowed)."""
    check(x, k, temperature, dim, mask, hard)
    last = dim % x.dim()
    rows = x.movedim(last, -1).double()
    if mask is not None:
        rows = rows.masked_fill(~mask.expand(x.shape).movedim(last, -1), -math.inf)
    y = _solve(rows, _per_row(k, rows), _per_row(temperature, rows)).to(x.dtype).movedim(-1, last)
    return hard_topk(x, k, dim=dim, mask=mask) + (y - y.detach()) if hard else y


def _per_row(value, rows: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        value = torch.full((), float(value), dtype=rows.dtype)
    return value.double().expand(rows.shape[:-1]).unsqueeze(-1)


def _solve(x: Tensor, k: Tensor, temperature: Tensor) -> Tensor:
    surely, excluded = x == math.inf, x == -math.inf
    n_surely, n_allowed = surely.sum(-1, keepdim=True), (~excluded).sum(-1, keepdim=True)
    saturated, crowded = n_allowed <= k, n_surely >= k
    finite = ~(surely | excluded)
    is_open = ~(saturated | crowded)
    rest = torch.where(is_open, k - n_surely, 0.5)
    x = torch.where(finite, x, 0.0)
    z = ((x - _anchor(x, finite, rest)) / temperature.clamp_min(1e-150)).clamp(-1e4, 1e4)

    def excess(c: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.where(finite, torch.sigmoid(z + c), 0.0)
        return y.sum(-1, keepdim=True) - rest, (y * (1 - y)).sum(-1, keepdim=True)

    with torch.no_grad():
        low, high = torch.full_like(rest, -1.1e4), torch.full_like(rest, 1.1e4)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            too_much = excess(middle)[0] > 0
            low, high = torch.where(too_much, low, middle), torch.where(too_much, middle, high)
    c = ((low + high) / 2).detach()
    for _ in range(NEWTON):
        over, slope = excess(c)
        moves = is_open & (slope > 1e-8)  # nearly hard rows have no derivative to speak of
        c = c - torch.where(moves, over, 0.0) / torch.where(moves, slope, 1.0)
    y = torch.where(finite, torch.sigmoid(z + c), surely.double())
    y = torch.where(crowded, surely * k / n_surely.clamp_min(1), y)
    return torch.where(saturated, (~excluded).double(), y)


def _anchor(x: Tensor, finite: Tensor, k: Tensor) -> Tensor:
    """The score at the budget's end, near which the threshold is; a shift has no derivative."""
    if x.shape[-1] == 0:
        return torch.zeros_like(k)
    order = torch.where(finite, x, -math.inf).detach().sort(-1, descending=True).values
    place = (k.detach().ceil().long() - 1).clamp(0, x.shape[-1] - 1)
    anchor = order.gather(-1, place)
    return torch.where(anchor.isfinite(), anchor, 0.0)


def check(x, k, temperature, dim, mask, hard) -> None:
    check_scores(x, dim)
    check_k(x, k, dim, hard)
    check_temperature(x, temperature, dim)
    check_mask(x, mask)


def check_scores(x, dim) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"scores: {getattr(x, 'dtype', type(x))}")
    if x.dim() == 0:
        raise ValueError("scores: a scalar")
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"dim: {dim!r}")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(f"dim: {dim}")


def _batch(x, dim) -> tuple[int, ...]:
    shape = list(x.shape)
    del shape[dim]
    return tuple(shape)


def _fits(shape, target) -> bool:
    try:
        return torch.broadcast_shapes(shape, target) == tuple(target)
    except RuntimeError:
        return False


def _readable(value) -> bool:
    return isinstance(value, Tensor) and not torch._C._functorch.is_functorch_wrapped_tensor(value)


def check_k(x, k, dim, hard) -> None:
    if isinstance(k, Tensor):
        if not _fits(k.shape, _batch(x, dim)):
            raise ValueError(f"k: shape {tuple(k.shape)}")
        if _readable(k) and not ((k >= 0) & (k <= x.shape[dim])).all():
            raise ValueError(f"k: {k.tolist()}")
    elif not isinstance(k, (int, float)) or isinstance(k, bool):
        raise TypeError(f"k: {k!r}")
    elif not 0 <= k <= x.shape[dim] or (hard and k != int(k)):
        raise ValueError(f"k: {k}")


def check_temperature(x, temperature, dim) -> None:
    if isinstance(temperature, Tensor):
        if not _fits(temperature.shape, _batch(x, dim)):
            raise ValueError(f"temperature: shape {tuple(temperature.shape)}")
        if _readable(temperature) and not (temperature > 0).all():
            raise ValueError(f"temperature: {temperature.tolist()}")
    elif not isinstance(temperature, (int, float)) or isinstance(temperature, bool):
        raise TypeError(f"temperature: {temperature!r}")
    elif not 0 < temperature < math.inf:
        raise ValueError(f"temperature: {temperature}")


def check_mask(x, mask) -> None:
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool):
        raise TypeError(f"mask: {getattr(mask, 'dtype', type(mask))}")
    if mask is not None and not _fits(mask.shape, x.shape):
        raise ValueError(f"mask: shape {tuple(mask.shape)}")


#: Named sigmoid, so that the contract compares it with the truth of that name. Not registered.
TOY = Relaxation(name="sigmoid", weights=toy_topk, real_k=True, smooth="C∞", max_n=2000)
