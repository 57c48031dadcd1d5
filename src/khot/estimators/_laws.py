"""The distributions that estimators sample from, with what a score function needs of them.

A design in random order has no log-probability, but it has one given the order. The order does not depend on
the scores, so the score given the order is unbiased too. The same holds for a Plackett–Luce set given the
order in which its members were drawn, which is cheaper than quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from khot.designs import PlackettLuce
from khot.designs._random_order import RandomOrder, random_order
from khot.designs.registry import get, names
from khot.estimators._arguments import Design, distribution_of, has_log_prob
from khot.relaxations._noise import gumbel

__all__ = ["check_law", "enumerated", "finite", "is_scored", "scored_draw"]

_MOST_SUBSETS = 20_000


def is_scored(design: Design) -> bool:
    """Whether sets have a log-probability, at least given the order."""
    return issubclass(get(design), RandomOrder) or has_log_prob(design)


def check_law(name: str, design: Design, suits: Callable[[Design], bool] = is_scored) -> None:
    """Raise unless the design has a log-probability: at least given the order, or as ``suits`` says."""
    get(design, name)
    if not suits(design):
        known = ", ".join(filter(suits, names()))
        raise ValueError(f"{name}: design must have a log-probability, got {design!r}; these have: {known}")


def scored_draw(
    design: Design, rows: Tensor, k: int, samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draws (samples, …, n) without gradient, and log-probabilities (samples, …) with one in the scores."""
    kind = get(design)
    if kind is PlackettLuce:
        return _in_turn(rows, k, samples, generator)
    if issubclass(kind, RandomOrder):
        shape = (samples, *rows.shape)
        order = random_order(shape, rows.device, generator)
        ordered = rows.expand(shape).gather(-1, order)
        made = kind.ordered(k, scores=ordered)
        drawn = made.sample((), generator)
        return torch.zeros_like(drawn).scatter(-1, order, drawn), finite(made.log_prob(drawn))
    made = distribution_of(rows, k, design)
    drawn = made.sample((samples,), generator)
    return drawn, finite(made.log_prob(drawn))


def finite(log_prob: Tensor) -> Tensor:
    """A set of probability zero but for rounding can be drawn: it has no gradient then."""
    return torch.where(log_prob.isfinite(), log_prob, 0.0)


def _in_turn(rows: Tensor, k: int, samples: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Plackett–Luce draws, and the log-probabilities of the order in which they came."""
    noise = gumbel((samples, *rows.shape), rows.device, generator).to(rows.dtype)
    order = (rows.detach() + noise).argsort(-1, descending=True)
    far = torch.finfo(rows.dtype).max / 4
    sorted_rows = rows.clamp(-far, far).expand(order.shape).gather(-1, order)
    rest = sorted_rows.flip(-1).logcumsumexp(-1).flip(-1)
    log_prob = (sorted_rows - rest)[..., :k].sum(-1)
    first = order[..., :k]
    # Where fewer than k can be drawn, all of them are.
    drawn = (rows.expand(order.shape).gather(-1, first) > -math.inf).to(rows.dtype)
    return torch.zeros_like(noise).scatter(-1, first, drawn), log_prob


def enumerated(design: Design, scores: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """All sets (sets, n) and their probabilities, with a gradient in the scores (n,); None if too many.

    Designs in random order give None too: they are means over n! orders.
    """
    if issubclass(get(design), RandomOrder) or math.comb(scores.shape[-1], k) > _MOST_SUBSETS:
        return None
    made = distribution_of(scores, k, design)
    sets = made.enumerate_support()
    log_prob = made.log_prob(sets)
    possible = log_prob > -math.inf
    return sets, torch.where(possible, torch.where(possible, log_prob, 0.0).exp(), 0.0)
