"""Which temperature makes weights as sharp as wanted: for comparisons at matched sharpness.

Two measures, each averaged over rows, both from 0 to 1 and monotone in the temperature:

    entropy    Σ H(yᵢ) / (n H(k/n)), H the binary entropy: 1 if all weights are equal, 0 if they are hard
    mass       Σ yᵢ over the k largest scores, divided by k: k/n if all weights are equal, 1 if they are hard
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from khot.relaxations._arguments import Number, check_budget, compute_dtype, per_row, position
from khot.relaxations._special import xlog1py, xlogy
from khot.relaxations.facade import topk
from khot.relaxations.hard import hard_topk
from khot.relaxations.registry import Relaxation, get

__all__ = ["calibrate_temperature", "sharpness"]

Measure = Literal["entropy", "mass"]


def calibrate_temperature(
    scores: Tensor,
    k: Number | Tensor,
    target: float,
    measure: Measure = "entropy",
    *,
    method: str | Relaxation = "sigmoid",
    dim: int = -1,
    mask: Tensor | None = None,
    **options: Any,
) -> float:
    r"""The temperature at which the weights of ``scores`` are, on average, as sharp as wanted.

    Found by bisection in :math:`\log \tau`, between 1e-8 and 1e8 times the standard deviation of the scores.

    Args:
        scores: any floating shape; a batch that is typical of the data.
        k: budget, an integer (for ``"mass"``) or any number, or a tensor like in :func:`khot.topk`.
        target: the mean value wanted: between 0 and 1, for ``"mass"`` between k/n and 1.
        measure: ``"entropy"``, the mean binary entropy of the weights relative to that of equal weights, or
            ``"mass"``, the share of the weight that lies on the k largest scores.
        method: the relaxation; not a random one, whose sharpness differs from call to call.
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.
        options: of the method.

    Returns:
        The temperature.

    Raises:
        ValueError: if no temperature reaches the target; the message says which values can be reached.

    Example:
        >>> x = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
        >>> tau = calibrate_temperature(x, 2, 0.9, "mass")
        >>> y = topk(x, 2, temperature=tau)
        >>> round(float(y[0, 0] + y[0, 2]), 3)
        1.8
    """
    if measure not in ("entropy", "mass"):
        raise ValueError(f"calibrate_temperature: measure must be 'entropy' or 'mass', got {measure!r}")
    if not 0 < target < 1:
        raise ValueError(f"calibrate_temperature: target must be between 0 and 1, got {target}")
    spec = method if isinstance(method, Relaxation) else get(method)
    if spec.stochastic:
        raise ValueError(f"calibrate_temperature: method must not be random, got {spec.name!r}")
    last = position("calibrate_temperature", scores, dim)
    check_budget("calibrate_temperature", scores, k, last, integer=measure == "mass")
    scores = scores.detach().to(torch.float64)

    def at(temperature: float) -> float:
        y = topk(scores, k, spec, temperature=temperature, dim=dim, mask=mask, **options)
        return sharpness(y, scores, k, measure, dim=dim, mask=mask)

    finite = scores[scores.isfinite() if mask is None else scores.isfinite() & mask]
    scale = float(finite.std()) if finite.numel() > 1 else 1.0
    scale = scale if scale > 0 else 1.0
    low, high = math.log(scale) - 18.4, math.log(scale) + 18.4
    ends = at(math.exp(low)), at(math.exp(high))
    if not min(ends) <= target <= max(ends):
        raise ValueError(
            f"calibrate_temperature: {measure} = {target} cannot be reached; "
            f"these scores give {min(ends):.4g} to {max(ends):.4g}"
        )
    rising = ends[1] > ends[0]
    for _ in range(50):
        middle = (low + high) / 2
        if (at(math.exp(middle)) < target) == rising:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def sharpness(
    y: Tensor,
    scores: Tensor,
    k: Number | Tensor,
    measure: Measure = "entropy",
    *,
    dim: int = -1,
    mask: Tensor | None = None,
) -> float:
    """How sharp the weights ``y`` of ``scores`` are, by a measure of this module: mean over rows."""
    y = y.detach().to(compute_dtype(y))
    last = dim % y.dim()
    budget = per_row("sharpness", "k", y, k, last).movedim(-1, last)
    if measure == "mass":
        on_top = (y * hard_topk(scores, k, dim=dim, mask=mask)).sum(dim, keepdim=True)
        return float((on_top / budget.clamp_min(torch.finfo(y.dtype).tiny)).mean())
    n = torch.full_like(y, y.shape[dim]) if mask is None else mask.expand(y.shape).sum(dim, keepdim=True)
    share = (budget / n).clamp(0, 1)
    equal = (n * _binary_entropy(share)).mean(dim, keepdim=True)
    ours = _binary_entropy(y.clamp(0, 1)).sum(dim, keepdim=True)
    return float((ours / equal.clamp_min(torch.finfo(y.dtype).tiny)).mean())


def _binary_entropy(p: Tensor) -> Tensor:
    return -(xlogy(p, p) + xlog1py(1 - p, -p))
