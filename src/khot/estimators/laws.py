"""The laws that estimators sample from, with what a score function needs of them.

A design in random order has no log-probability, but given the order it has; the order does not depend on the
scores, so the score given the order is as unbiased. Likewise a Plackett–Luce set given the order in which its
members came, which is cheaper than its quadrature.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.designs import KHotDistribution, SequentialPivotal, Systematic, TreePivotal
from khot.designs._random_order import random_order
from khot.designs.facade import DESIGNS
from khot.estimators.arguments import distribution_of, has_log_prob
from khot.relaxations import sigmoid_topk
from khot.relaxations._noise import gumbel

__all__ = ["LAWS", "PLACKETT_LUCE", "check_law", "enumerated", "scored_draw"]

PLACKETT_LUCE = "plackett_luce"
_ORDERED: dict[str, type[KHotDistribution]] = {
    "random_systematic": Systematic,
    "random_tree_pivotal": TreePivotal,
    "random_pivotal": SequentialPivotal,
}
LAWS = tuple(name for name in DESIGNS if name in _ORDERED or has_log_prob(name))
"""The designs by name that have a log-probability, or one given the order."""

_MOST_SUBSETS = 20_000


def check_law(name: str, design: str) -> None:
    """Raise unless it is one of the laws."""
    if design not in LAWS:
        raise ValueError(f"{name}: design must be one of {', '.join(LAWS)}, got {design!r}")


def scored_draw(
    law: str, rows: Tensor, k: int, samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draws (samples, …, n) without gradient, and log-probabilities (samples, …) with one in the scores."""
    if law == PLACKETT_LUCE:
        return _in_turn(rows, k, samples, generator)
    if law in _ORDERED:
        pi = sigmoid_topk(rows, k).expand(samples, *rows.shape)
        order = random_order(pi.shape, pi.device, generator)
        made = _ORDERED[law](k, probs=pi.gather(-1, order))
        drawn = made.sample((), generator)
        return torch.zeros_like(drawn).scatter(-1, order, drawn), _finite(made.log_prob(drawn))
    made = distribution_of(rows, k, law)
    drawn = made.sample((samples,), generator)
    return drawn, _finite(made.log_prob(drawn))


def _finite(log_prob: Tensor) -> Tensor:
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
    return torch.zeros_like(noise).scatter(-1, order[..., :k], 1.0), log_prob


def enumerated(law: str, scores: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """All sets (sets, n) and their probabilities, with a gradient in the scores (n,); None if too many.

    None also for designs in random order, which are means over n! orders.
    """
    if law in _ORDERED or math.comb(scores.shape[-1], k) > _MOST_SUBSETS:
        return None
    made = distribution_of(scores, k, law)
    sets = made.enumerate_support()
    log_prob = made.log_prob(sets)
    possible = log_prob > -math.inf
    return sets, torch.where(possible, torch.where(possible, log_prob, 0.0).exp(), 0.0)
