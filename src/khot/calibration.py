"""Find the temperature that gives a chosen sharpness: to set a temperature, or to compare methods fairly.

Sharpness is the mean over rows of one of two metrics of :mod:`khot.metrics`. Both are monotone in the
temperature:

    entropy           relative to equal weights: 1 if all weights are equal, 0 if the selection is hard
    weight_on_topk    share of the budget on the k largest: k/n if all weights are equal, 1 if hard
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from khot import metrics
from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    check_budget,
    check_per_row,
    directed,
    position,
)
from khot.relaxations._plain_arguments import check_generator, check_number
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.registry import Relaxation, get

__all__ = ["calibrate_temperature"]

_NAME = "calibrate_temperature"
_STEPS = 50
_LOG_RANGE = math.log(1e8)


def calibrate_temperature(
    scores: Tensor,
    k: Number | Tensor,
    *,
    method: str | Relaxation = "sigmoid",
    entropy: float | None = None,
    weight_on_topk: float | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    **options: Any,
) -> float:
    r"""Find the temperature at which the weights of ``scores`` have, on average, the given sharpness.

    Give one target: ``weight_on_topk=0.9`` puts nine tenths of the weight on the k largest scores. The search
    is a bisection in :math:`\log \tau`, between 1e-8 and 1e8 times the standard deviation of the scores
    within their rows. Cost: 52 calls of the method, in float64 and without gradients.

    Args:
        scores: a floating-point tensor of any shape; a batch that is typical of the data.
        k: budget: an integer for ``weight_on_topk``, any number for ``entropy``, or a tensor as in
            :func:`khot.topk`.
        method: the relaxation. A random method needs ``generator=``: every temperature is tried with the same
            noise, and the state of the generator is restored. The target is met exactly for this noise, and
            approximately for other noise.
        entropy: target for the mean of :func:`khot.metrics.entropy`, normalised: between 0 and 1.
        weight_on_topk: target for the mean of :func:`khot.metrics.weight_on_topk`: between k/n and 1.
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.
        largest: False selects the smallest scores.
        options: further options of the method.

    Returns:
        The temperature, a Python float.

    Raises:
        ValueError: if no temperature reaches the target; the message gives the range that can be reached.

    Example:
        >>> x = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
        >>> tau = calibrate_temperature(x, 2, weight_on_topk=0.9)
        >>> y = topk(x, 2, temperature=tau)
        >>> round(float(y[0, 0] + y[0, 2]), 3)
        1.8
    """
    target, wanted = _checked_target(entropy, weight_on_topk)
    spec = get(method, _NAME)
    checked_options(_NAME, spec, {key: value for key, value in options.items() if key != "capped"})
    last = position(_NAME, scores, dim)
    check_budget(_NAME, scores, k, last, integer=target == "weight_on_topk")
    check_per_row(_NAME, "k", scores, k, last)
    rows = allowed_scores(_NAME, directed(_NAME, scores, largest).detach().to(torch.float64), mask)
    allowed = rows != -math.inf
    weights = _repeatable(spec, options)

    def at(log_temperature: float) -> float:
        y = weights(rows, k, temperature=math.exp(log_temperature), dim=last)
        if target == "entropy":
            return float(metrics.entropy(y, dim=last, mask=allowed, normalized=True).mean())
        return float(metrics.weight_on_topk(y, rows, k, dim=last).mean())

    centre = math.log(_spread(rows, last))
    low, high = centre - _LOG_RANGE, centre + _LOG_RANGE
    ends = at(low), at(high)
    if not min(ends) <= wanted <= max(ends):
        raise ValueError(
            f"{_NAME}: {target} = {wanted} cannot be reached; "
            f"method {spec.name!r} gives these scores {min(ends):.4g} to {max(ends):.4g}"
        )
    rising = ends[1] > ends[0]
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if (at(middle) < wanted) == rising:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _checked_target(entropy: float | None, weight_on_topk: float | None) -> tuple[str, float]:
    """The one that is given, and its value."""
    targets = {"entropy": entropy, "weight_on_topk": weight_on_topk}
    given = {name: value for name, value in targets.items() if value is not None}
    if len(given) != 1:
        got = "both" if given else "neither"
        raise TypeError(f"{_NAME}: exactly one of entropy= and weight_on_topk= must be given, got {got}")
    ((name, value),) = given.items()
    check_number(_NAME, name, value)
    if not 0 < value < 1:
        raise ValueError(f"{_NAME}: {name} must be between 0 and 1, got {value}")
    return name, float(value)


def _repeatable(spec: Relaxation, options: dict[str, Any]) -> Callable[..., Tensor]:
    """The weights of the method; of a random one with the same noise whenever it is called."""

    def weights(scores: Tensor, k: Number | Tensor, **settings: Any) -> Tensor:
        return topk(scores, k, spec, **settings, **options)

    if not spec.stochastic:
        return weights
    generator: torch.Generator | None = options.get("generator")
    check_generator(_NAME, generator)
    if generator is None:
        raise ValueError(
            f"{_NAME}: method {spec.name!r} is random: it needs generator=torch.Generator().manual_seed(…), "
            "or its sharpness differs from call to call"
        )
    state = generator.get_state()

    def with_the_same_noise(scores: Tensor, k: Number | Tensor, **settings: Any) -> Tensor:
        try:
            return weights(scores, k, **settings)
        finally:
            generator.set_state(state)

    return with_the_same_noise


def _spread(rows: Tensor, dim: int) -> float:
    """The standard deviation of the finite scores within their rows."""
    finite = rows.isfinite()
    count = finite.sum(dim, keepdim=True)
    values = torch.where(finite, rows, 0)
    centred = torch.where(finite, values - values.sum(dim, keepdim=True) / count.clamp_min(1), 0)
    size = float(centred.abs().amax()) if centred.numel() else 0.0
    lowest, highest = (torch.where(finite, rows, sign * math.inf) for sign in (1, -1))
    if size == 0 or not bool((highest.amax(dim) > lowest.amin(dim)).any()):
        raise ValueError(
            f"{_NAME}: scores must differ within a row: equal ones get equal weights at every temperature; "
            "pass a batch whose scores vary, such as a model's on real data"
        )
    # By way of the largest, whose square may overflow.
    return size * math.sqrt(float((centred / size).square().sum()) / float(count.sum()))
