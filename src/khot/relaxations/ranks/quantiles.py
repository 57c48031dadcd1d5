"""Soft quantiles: interpolated order statistics of softly sorted values.

    Q(q) = (1 − f) s_⌊p⌋ + f s_⌊p⌋₊₁,      p = q (n − 1),  f = p − ⌊p⌋,

with s_0 ≤ … ≤ s_{n−1} from :func:`khot.soft_sort`: the linear convention of ``torch.quantile``, which is the
limit as τ → 0. Where the hard quantile has a gradient in one or two entries, this has one in every entry that
is pooled with them. Cost: one sort, O(n log n). Reference: Blondel, Teboul, Berthet & Djolonga (2020), Fast
Differentiable Sorting and Ranking.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import Number, check_mask, check_temperature, compute_dtype, position
from khot.relaxations.ranks.soft_rank import Regularization, check_regularization, soft_sort

__all__ = ["soft_median", "soft_quantile"]


def soft_quantile(
    x: Tensor,
    q: Number | Tensor,
    *,
    regularization: Regularization = "l2",
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    keepdim: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Differentiable quantiles of ``x`` along ``dim``, interpolated as in :func:`torch.quantile`.

    .. math:: Q(q) = (1 - f)\, s_{\lfloor p \rfloor} + f\, s_{\lfloor p \rfloor + 1}, \qquad p = q (n - 1),
              \quad f = p - \lfloor p \rfloor

    with :math:`s_0 \le \dots \le s_{n-1}` the soft sorted values. As τ → 0 this is the quantile, as τ grows
    every quantile becomes the mean (for ``"kl"`` a log-mean-exp of −x, negated).

    Args:
        x: values, any floating shape, finite where allowed.
        q: in [0, 1]: a number, or a tensor of none or one dimension.
        regularization: of :func:`khot.soft_sort`, ``"l2"`` or ``"kl"``.
        temperature: > 0, a number or a tensor that broadcasts to ``x.shape`` without ``dim``. It is measured
            in units of 1/x: where no gap between neighbours in order exceeds 1/τ, the result is the hard one.
        dim: the dimension to reduce.
        keepdim: keep it, with length 1.
        mask: boolean, broadcastable to ``x``; False takes no part. A row without any allowed entry gives 0.

    Returns:
        Quantiles of the shape of ``x`` without ``dim``; for a ``q`` of one dimension, that one in front.

    Example:
        >>> x = torch.tensor([4.0, 1.0, 2.0, 9.0])
        >>> soft_quantile(x, torch.tensor([0.0, 0.5, 1.0]), temperature=0.01).tolist()
        [1.0, 3.0, 9.0]
        >>> soft_quantile(x, 0.25, temperature=0.01, mask=x < 5).item()
        1.5

    Reference: Blondel, Teboul, Berthet & Djolonga (2020), Fast Differentiable Sorting and Ranking.
    """
    return _quantile("soft_quantile", x, q, regularization, temperature, dim, keepdim, mask)


def soft_median(
    x: Tensor,
    *,
    regularization: Regularization = "l2",
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    keepdim: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Differentiable median of ``x`` along ``dim``: the soft quantile at ½.

    .. math:: m = \tfrac12 \big(s_{\lfloor (n-1)/2 \rfloor} + s_{\lceil (n-1)/2 \rceil}\big)

    Of an even number of values it is the mean of the two in the middle, as in numpy; :func:`torch.median`
    takes the lower of them.

    Args:
        x: values, any floating shape, finite where allowed.
        regularization: of :func:`khot.soft_sort`, ``"l2"`` or ``"kl"``.
        temperature: as in :func:`khot.soft_quantile`.
        dim: the dimension to reduce.
        keepdim: keep it, with length 1.
        mask: boolean, broadcastable to ``x``; False takes no part. A row without any allowed entry gives 0.

    Returns:
        Medians of the shape of ``x`` without ``dim``.

    Example:
        >>> soft_median(torch.tensor([4.0, 1.0, 2.0, 9.0]), temperature=0.01).item()
        3.0

    Reference: Blondel, Teboul, Berthet & Djolonga (2020), Fast Differentiable Sorting and Ranking.
    """
    return _quantile("soft_median", x, 0.5, regularization, temperature, dim, keepdim, mask)


def _quantile(
    name: str,
    x: Tensor,
    q: Number | Tensor,
    regularization: Regularization,
    temperature: Number | Tensor,
    dim: int,
    keepdim: bool,
    mask: Tensor | None,
) -> Tensor:
    last = position(name, x, dim, "x")
    n = x.shape[last]
    if n == 0:
        raise ValueError(f"{name}: x must have an entry along dim {dim}, got shape {tuple(x.shape)}")
    check_temperature(name, temperature)
    check_regularization(name, regularization)
    _check_probability(name, q)
    rows = x.to(compute_dtype(x)).movedim(last, -1)
    count = torch.full((), n, device=x.device).expand(*rows.shape[:-1], 1)
    allowed = None
    if mask is not None:
        check_mask(name, x, mask)
        allowed = mask.expand(x.shape).movedim(last, -1)
        count = allowed.sum(-1, keepdim=True)
    values = soft_sort(rows, regularization=regularization, temperature=temperature, mask=allowed)
    end = (count - 1).clamp_min(0)
    # In double: in float32 the fraction of a place beyond a million has few digits left.
    place = torch.as_tensor(q, dtype=torch.float64, device=x.device).reshape(-1) * end
    low = place.detach().floor().long()
    below, above = values.gather(-1, low), values.gather(-1, torch.minimum(low + 1, end))
    result = torch.lerp(below, above, (place - low).to(values.dtype)).to(x.dtype).movedim(-1, 0)
    if keepdim:
        result = result.unsqueeze(last + 1)
    return result if isinstance(q, Tensor) and q.dim() == 1 else result.squeeze(0)


def _check_probability(name: str, q: Number | Tensor) -> None:
    if isinstance(q, Tensor):
        if q.dim() > 1 or not q.is_floating_point():
            raise ValueError(
                f"{name}: q must be a number or a floating-point tensor of at most one dimension, "
                f"got {q.dtype} of shape {tuple(q.shape)}"
            )
        if not is_plain(q):
            return
        low, high = q.detach().aminmax()
        if not (low >= 0 and high <= 1):
            raise ValueError(f"{name}: q must lie in [0, 1], got values in [{low.item():g}, {high.item():g}]")
    elif not 0 <= q <= 1:
        raise ValueError(f"{name}: q must lie in [0, 1], got {q}")
