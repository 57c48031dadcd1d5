r"""The laws that estimators sample from, with what a score function needs of them.

A design in random order has no log-probability, but given the order it has; the order does not depend on the
scores, so the score given the order is as unbiased. Likewise a Plackett–Luce set given the order in which its
members came. Where sets are enumerated the order must not matter:

.. math:: P(S) = \sum_{A \subseteq S} (-1)^{|A|} \frac{W_{\bar S}}{W_{\bar S} + W_A}

is the probability that all exponential clocks of S, with rates w = exp θ, ring before all others.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from khot.designs import KHotDistribution, Systematic, TreePivotal
from khot.designs.facade import DESIGNS
from khot.designs.random_order import random_order
from khot.estimators.arguments import distribution_of
from khot.relaxations import sigmoid_topk
from khot.relaxations.noise import gumbel

__all__ = ["LAWS", "PLACKETT_LUCE", "check_law", "enumerated", "scored_draw"]

PLACKETT_LUCE = "plackett_luce"
LAWS = (*DESIGNS, PLACKETT_LUCE)
"""The designs by name, and that of a Gumbel top-k sample."""

_ORDERED: dict[str, type[KHotDistribution]] = {
    "random_systematic": Systematic,
    "random_tree_pivotal": TreePivotal,
}
_MOST_SUBSETS = 20_000
_MOST_TERMS = 2_000_000


def check_law(name: str, design: str) -> None:
    """Raise unless it is one of the laws."""
    if design not in LAWS:
        raise ValueError(f"{name}: unknown design {design!r}; known designs: {', '.join(LAWS)}")


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
    made, _ = distribution_of(rows, k, law)
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
    n = scores.shape[-1]
    count = math.comb(n, k)
    terms = count * 2**k if law == PLACKETT_LUCE else count
    if law in _ORDERED or count > _MOST_SUBSETS or terms > _MOST_TERMS:
        return None
    made, _ = distribution_of(scores, k, "tree_pivotal" if law == PLACKETT_LUCE else law)
    sets = made.enumerate_support()
    if law == PLACKETT_LUCE:
        return sets, _all_ring_before(scores, k, sets)
    log_prob = made.log_prob(sets)
    possible = log_prob > -math.inf
    return sets, torch.where(possible, torch.where(possible, log_prob, 0.0).exp(), 0.0)


def _all_ring_before(scores: Tensor, k: int, sets: Tensor) -> Tensor:
    """P(S) of Plackett–Luce for each row of ``sets``, by inclusion and exclusion."""
    weights = torch.softmax(scores, -1)
    members = weights[sets.nonzero()[:, 1].view(-1, k)]
    chosen = scores.new_tensor(list(itertools.product((0.0, 1.0), repeat=k))).view(2**k, k)
    sign = 1 - 2 * (chosen.sum(-1) % 2)
    rest = ((1 - sets) * weights).sum(-1, keepdim=True)
    return (sign * rest / (rest + members @ chosen.T)).sum(-1)
