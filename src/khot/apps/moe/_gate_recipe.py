"""Find out by trial how the router of a transformers model computes.

Router classes differ in small ways: softmax or sigmoid, renormalised or not, the dtype of the product,
whether the weights are cast back, how groups are scored. Each combination is a :class:`Recipe`. The recipe of
a gate is the one that reproduces the gate's result bit for bit, on random tokens and parameters, in float32
and in bfloat16. A gate that no recipe reproduces is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from khot.apps.moe._choice import allowed_experts, best_experts
from khot.apps.moe._rule import GroupScore, Rule
from khot.apps.moe._scores import TINY

__all__ = ["Recipe", "find_recipe", "tensors_of"]

GateScore = Literal["softmax", "sigmoid", "sqrtsoftplus", "softmax of the chosen"]
_TOKENS = 256


@dataclass(frozen=True)
class Recipe:
    """The arithmetic of a gate.

    Args:
        num_experts: the number of experts.
        k: how many experts are chosen per token.
        score: the function of the logits; gpt-oss takes the softmax over the chosen experts only.
        renormalise: whether weights are divided by their sum.
        scaling_factor: the factor of the weights.
        wide_product: whether hidden states and parameters are float32 in the product.
        cast_back: whether weights are cast to the dtype of the logits.
        num_groups: the number of groups of experts.
        kept_groups: how many groups a token can use.
        group_score: how groups are compared.
        torch_order: whether the sum runs in the order in which ``torch.topk(sorted=False)`` finds the
            weights, which changes its last bit.
    """

    num_experts: int
    k: int
    score: GateScore
    renormalise: bool
    scaling_factor: float
    wide_product: bool
    cast_back: bool
    num_groups: int = 1
    kept_groups: int = 1
    group_score: GroupScore = "top2"
    torch_order: bool = False

    def logits(self, hidden: Tensor, weight: Tensor, offset: Tensor | None) -> Tensor:
        """Raw logits (T, experts) as the gate computes them."""
        hidden = hidden.reshape(-1, weight.shape[1])
        if self.wide_product:
            hidden, weight = hidden.float(), weight.float()
            offset = None if offset is None else offset.float()
        return nn.functional.linear(hidden, weight, offset)

    def choose(self, logits: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights and indices as the gate computes them, except that ties go by index."""
        scores = self.scores(logits)
        choice = scores.detach() if bias is None else scores.detach() + bias
        rule = Rule(
            self.num_experts,
            self.k,
            num_groups=self.num_groups,
            kept_groups=self.kept_groups,
            group_score=self.group_score,
        )
        allowed = allowed_experts(choice, rule)
        indices = best_experts(choice, self.k, allowed)
        return self.weigh(scores, indices, choice, allowed), indices

    def weigh(
        self, scores: Tensor, indices: Tensor, choice: Tensor | None = None, allowed: Tensor | None = None
    ) -> Tensor:
        """The weights of these experts, summed in the gate's own order if ``choice`` is given."""
        weights = scores.gather(-1, indices)
        dtype = weights.dtype
        if self.score == "softmax of the chosen":
            weights = weights.softmax(-1)
        elif self.renormalise:
            summed = weights
            if self.torch_order and choice is not None:
                ranked = choice if allowed is None else choice.masked_fill(~allowed, -torch.inf)
                summed = scores.gather(-1, ranked.topk(self.k, dim=-1, sorted=False).indices)
            weights = weights / (summed.sum(-1, keepdim=True) + TINY)
        weights = weights * self.scaling_factor
        return weights.to(dtype)

    def scores(self, logits: Tensor) -> Tensor:
        if self.score == "softmax of the chosen":
            return logits
        if self.score == "softmax":
            return logits.softmax(-1, dtype=torch.float32)
        if self.score == "sigmoid":
            return logits.float().sigmoid() if not self.cast_back else logits.sigmoid()
        return nn.functional.softplus(logits).sqrt()

    def __call__(
        self, hidden: Tensor, weight: Tensor, offset: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the gate gives: logits, weights, indices."""
        logits = self.logits(hidden, weight, offset)
        weights, indices = self.choose(logits, bias)
        return logits, weights.to(logits.dtype) if self.cast_back else weights, indices


def tensors_of(gate: nn.Module) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gate's weight (experts, hidden), the offset of its logits, and the bias of its choice."""
    found: Any = gate
    return found.weight, getattr(found, "bias", None), getattr(found, "e_score_correction_bias", None)


def find_recipe(gate: nn.Module, caller: str) -> Recipe:
    """The recipe of a gate; a ``TypeError`` names the class if there is none."""
    kind = type(gate).__name__
    weight, k = getattr(gate, "weight", None), getattr(gate, "top_k", None)
    if not (isinstance(weight, Tensor) and weight.dim() == 2 and isinstance(k, int)):
        raise TypeError(
            f"{caller}: {kind} does not look like a router of transformers 5, "
            "which has weight (experts, hidden) and top_k"
        )
    reason = "no known way to compute gives its weights"
    try:
        for recipe in _candidates(gate, k):
            if all(_agrees(gate, recipe, dtype) for dtype in (torch.bfloat16, torch.float32)):
                return recipe
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise TypeError(f"{caller}: {kind} does not fit: {reason}")


def _candidates(gate: nn.Module, k: int) -> Iterator[Recipe]:
    """Ways to compute that the gate's attributes leave open, the usual ones first."""
    known: Any = gate
    experts = known.weight.shape[0]
    factor = float(getattr(known, "routed_scaling_factor", 1.0))
    declared = getattr(known, "norm_topk_prob", None)
    groups = getattr(known, "num_group", None) or 1
    kept = getattr(known, "topk_group", None) or groups
    scores: tuple[GateScore, ...] = ("softmax", "sigmoid", "sqrtsoftplus", "softmax of the chosen")
    limits: list[tuple[int, int, GroupScore]] = [(1, 1, "top2")]
    if kept < groups:
        limits = [(groups, kept, "top2"), (groups, kept, "max"), *limits]
    for score, renormalise, wide, cast, limit, order, scaled in itertools.product(
        scores,
        (True, False) if declared is None else (bool(declared),),
        (False, True),
        (False, True),
        limits,
        (False, True),
        (True, False),
    ):
        if (not renormalise and order) or (not scaled and factor == 1.0):
            continue
        yield Recipe(
            num_experts=experts,
            k=k,
            score=score,
            renormalise=renormalise,
            scaling_factor=factor if scaled else 1.0,
            wide_product=wide,
            cast_back=cast,
            num_groups=limit[0],
            kept_groups=limit[1],
            group_score=limit[2],
            torch_order=order,
        )


@torch.no_grad()
def _agrees(gate: nn.Module, recipe: Recipe, dtype: torch.dtype) -> bool:
    """Whether gate and recipe give the same on random tokens, wherever the cut has no tie."""
    shadow, hidden = _shadow(gate, dtype)
    found: Any = type(gate).forward(shadow, hidden)
    kind = type(found).__name__
    if not (kind == "tuple" and len(found) == 3):
        raise TypeError(f"forward must give (logits, weights, indices), got {kind}")
    logits, weights, indices = recipe(hidden, *tensors_of(shadow))
    alike = weights.shape == found[1].shape and weights.dtype == found[1].dtype
    if not alike or not torch.equal(logits, found[0]):
        return False
    slots, own = indices.sort(-1), found[2].sort(-1)
    same = (slots.values == own.values).all(-1)
    equal = weights.gather(-1, slots.indices) == found[1].gather(-1, own.indices)
    # In bfloat16 some cuts have a tie; where none has one, sets that differ mean another choice.
    enough = 0.5 if dtype == torch.bfloat16 else 1.0
    return bool(same.float().mean() >= enough) and bool(equal[same].all())


def _shadow(gate: nn.Module, dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    """A gate of the same class and settings with random state on the CPU, without hooks; and tokens for
    it."""
    generator = torch.Generator().manual_seed(0)
    shadow = type(gate).__new__(type(gate))
    shadow.__dict__.update(gate.__dict__)

    def random(tensor: Tensor | None, to: torch.dtype, scale: float) -> Tensor | None:
        if tensor is None:
            return None
        return (scale * torch.randn(tensor.shape, generator=generator)).to(to)

    # Logits of deviation 1, a bias of the size of differences between scores.
    known: Any = gate
    width: int = known.weight.shape[1]
    scale = width**-0.5
    shadow.__dict__["_parameters"] = {name: random(t, dtype, scale) for name, t in known._parameters.items()}
    shadow.__dict__["_buffers"] = {name: random(t, torch.float32, 0.1) for name, t in known._buffers.items()}
    hidden = torch.randn(_TOKENS, width, generator=generator).to(dtype)
    return shadow, hidden
