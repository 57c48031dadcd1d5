"""How each routing chooses experts, and their weights with the gradient of the routing."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from khot.apps.moe._choice import allowed_experts, best_experts, choice_scores
from khot.apps.moe._rule import Rule
from khot.apps.moe._scores import TINY, scores_of
from khot.apps.moe._softmax_topk import softmax_at, softmax_topk
from khot.estimators._arguments import distribution_of, inclusion_of
from khot.relaxations.entries import topk_entries
from khot.relaxations.facade import topk
from khot.relaxations.straight_through import straight_through

__all__ = ["Chosen", "finished", "routed"]

_RAREST = 1e-3  # what is drawn less often than this has a little less gradient instead of a huge one
_METHOD = {"sigmoid_topk": "sigmoid", "straight_through": "sigmoid", "sampled": "sigmoid", "sparse": "sparse"}


class Chosen(NamedTuple):
    """The k experts of each token and their weights, both (T, k)."""

    weights: Tensor
    indices: Tensor


def routed(
    logits: Tensor,
    rule: Rule,
    *,
    temperature: float | Tensor = 1.0,
    bias: Tensor | None = None,
    given: Tensor | None = None,
    draw: bool = False,
    generator: torch.Generator | None = None,
) -> Chosen:
    """Choose k experts for each row of ``logits`` (T, experts), or take the given ones, and weigh them.

    The weights are not yet renormalised or scaled.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if given is None and bias is None and not rule.limits_groups and not (draw and rule.routing == "sampled"):
        return _by_logits(logits, rule, temperature)
    choice = choice_scores(logits, rule, bias)
    allowed = allowed_experts(choice, rule, given)
    if given is None:
        if draw and rule.routing == "sampled":
            return _drawn(logits, rule, temperature, allowed, generator)
        given = best_experts(choice, rule.k, allowed)
    return Chosen(_weights_at(logits, rule, temperature, allowed, given), given)


def finished(weights: Tensor, rule: Rule, mask: Tensor | None) -> Tensor:
    """The weights, renormalised and scaled, and zero for padding."""
    if rule.renormalise and not (rule.routing == "topk" and rule.score == "softmax"):
        weights = weights / (weights.sum(-1, keepdim=True) + TINY)
    if rule.factor != 1.0:
        weights = weights * rule.factor
    return weights if mask is None else torch.where(mask.unsqueeze(-1), weights, 0)


def _by_logits(logits: Tensor, rule: Rule, temperature: float | Tensor) -> Chosen:
    """The largest logits, without a dense row of weights: every score rises with its logit."""
    if rule.routing != "topk":
        hard = rule.routing in ("straight_through", "sampled")
        method = _METHOD[rule.routing]
        entries = topk_entries(logits, rule.k, method, temperature=temperature, hard=hard)
        return Chosen(entries.weights, entries.indices)
    if rule.score == "softmax":
        return Chosen(*softmax_topk(logits, rule.k, rule.renormalise))
    entries = topk_entries(logits, rule.k, hard=True)
    return Chosen(scores_of(entries.values, rule.score), entries.indices)


def _weights_at(
    logits: Tensor, rule: Rule, temperature: float | Tensor, allowed: Tensor | None, indices: Tensor
) -> Tensor:
    """Weights of experts that need not be the largest logits."""
    if rule.routing == "topk":
        chosen = logits.gather(-1, indices)
        if rule.score == "softmax":
            return softmax_at(logits, chosen, rule.renormalise)
        return scores_of(chosen, rule.score)
    dense = topk(logits, rule.k, _METHOD[rule.routing], temperature=temperature, mask=allowed)
    weights = dense.gather(-1, indices)
    if rule.routing in ("straight_through", "sampled"):
        return straight_through(weights, torch.ones_like(weights))
    return weights


def _drawn(
    logits: Tensor,
    rule: Rule,
    temperature: float | Tensor,
    allowed: Tensor | None,
    generator: torch.Generator | None,
) -> Chosen:
    r"""A sample of k experts; its weights are ones, or what a relaxed sample has at its k largest.

    Only drawn experts are computed, so only they bring a gradient: divided by their probabilities π, as
    Horvitz and Thompson weigh a sample, its mean is the estimator's own with all experts computed. For a
    mixture, which is affine in the weights, that of straight-through is exact. Samples of Plackett–Luce,
    whose π is a quadrature that takes seconds, are left as they are.
    """
    assert rule.estimator is not None
    scores = logits / temperature
    sample = rule.estimator(scores, rule.k, mask=allowed, generator=generator)
    indices = topk_entries(sample.detach(), rule.k, hard=True, mask=allowed).indices
    weights = sample.gather(-1, indices)
    if rule.estimator.design != "plackett_luce":
        with torch.no_grad():
            rows = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
            chance = inclusion_of(distribution_of(rows, rule.k, rule.estimator.design)).gather(-1, indices)
        weights = straight_through(weights / chance.to(weights.dtype).clamp_min(_RAREST), weights)
    return Chosen(weights, indices)
