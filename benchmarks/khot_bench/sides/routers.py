"""Sides that route tokens to experts: from logits, or as whole routers from hidden states."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

import khot
from khot.apps.moe import TopKRouter
from khot.apps.moe._rule import Rule
from khot.apps.moe._weights import finished, routed
from khot.compare.cost.side import Side

__all__ = ["router", "selection", "transformers_router", "transformers_selection"]

EXPERTS = 64
_LABELS = {
    "topk": "top-k of softmax",
    "renormalised": "top-k of softmax, renormalised",
    "sigmoid": "top-k of sigmoid, renormalised",
    "sigmoid_topk": "sigmoid top-k",
    "straight_through": "straight-through",
    "sparse": "sparse top-k",
}


def _rule(choice: str, experts: int, k: int) -> Rule:
    if choice in ("renormalised", "sigmoid"):
        score = "softmax" if choice == "renormalised" else "sigmoid"
        return Rule(experts, k, "topk", score, renormalise=True)
    return Rule(experts, k, choice)  # pyright: ignore[reportArgumentType]


def selection(choice: str) -> Side:
    """Logits to weights and indices, as `TopKRouter` does it."""

    def call(x: Tensor, k: int) -> Tensor:
        rule = _rule(choice, x.shape[-1], k)
        return finished(routed(x, rule).weights, rule, None)

    return Side(f"khot {_LABELS[choice]}", "khot", khot.__version__, call, "khot", "values")


def transformers_selection() -> Side:
    """What the routers of transformers do with logits: softmax, topk, division by the sum."""

    def call(x: Tensor, k: int) -> Tensor:
        probs = torch.softmax(x, dim=-1, dtype=torch.float)
        weights, _ = torch.topk(probs, k, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True)

    return Side("softmax, topk, renormalise", "torch", torch.__version__, call, "torch", "values")


@functools.lru_cache(maxsize=4)
def _weight(hidden: int) -> Tensor:
    return 0.1 * torch.randn(EXPERTS, hidden, generator=torch.Generator().manual_seed(2))


def router(choice: str) -> Side:
    """Hidden states to weights and indices of 64 experts: the module `TopKRouter`, its weight trained too."""

    @functools.lru_cache(maxsize=4)
    def made(hidden: int, k: int) -> TopKRouter:
        rule = _rule(choice, EXPERTS, k)
        module = TopKRouter(
            hidden, EXPERTS, k, score=rule.score, routing=rule.routing, renormalise=rule.renormalise
        )
        with torch.no_grad():
            module.weight.copy_(_weight(hidden))
        return module

    def call(x: Tensor, k: int) -> Tensor:
        return made(x.shape[-1], k)(x).weights

    return Side(f"khot {_LABELS[choice]}", "khot", khot.__version__, call, "khot", "values")


def transformers_router() -> Side:
    """The router of Mixtral, line by line, so that transformers need not be there."""

    @functools.lru_cache(maxsize=4)
    def weight(hidden: int) -> nn.Parameter:
        return nn.Parameter(_weight(hidden).clone())

    def call(x: Tensor, k: int) -> Tensor:
        logits = nn.functional.linear(x, weight(x.shape[-1]))
        probs = torch.softmax(logits.float(), dim=-1)
        weights, _ = torch.topk(probs, k, dim=-1)
        weights /= weights.sum(dim=-1, keepdim=True)
        return weights

    return Side("router of transformers", "torch", torch.__version__, call, "torch", "values")
