"""How a router chooses and weighs experts: one frozen record, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from khot import estimators
from khot.estimators import Estimator
from khot.relaxations._arguments import check_temperature
from khot.relaxations._plain_arguments import check_choice, check_integer, is_number

__all__ = [
    "GROUP_SCORES",
    "ROUTINGS",
    "SCORES",
    "GroupScore",
    "Routing",
    "Rule",
    "Score",
    "check_rule_temperature",
    "chosen_estimator",
]

Score = Literal["softmax", "sigmoid", "sqrtsoftplus"]
Routing = Literal["topk", "sigmoid_topk", "straight_through", "sampled", "sparse"]
GroupScore = Literal["max", "top2"]
SCORES: tuple[str, ...] = get_args(Score)
ROUTINGS: tuple[str, ...] = get_args(Routing)
GROUP_SCORES: tuple[str, ...] = get_args(GroupScore)


@dataclass(frozen=True)
class Rule:
    """The settings of :class:`TopKRouter`, which documents them, except those with parameters."""

    num_experts: int
    k: int
    routing: Routing = "topk"
    score: Score = "softmax"
    renormalise: bool = False
    scaling_factor: float | Literal["unit"] = 1.0
    num_groups: int = 1
    kept_groups: int = 1
    group_score: GroupScore = "top2"
    estimator: Estimator | None = None

    def checked(self, name: str) -> Rule:
        """This rule, after checking that its settings fit together."""
        check_integer(name, "num_experts", self.num_experts)
        check_integer(name, "k", self.k)
        if self.k > self.num_experts:
            raise ValueError(f"{name}: k must be at most num_experts = {self.num_experts}, got {self.k}")
        check_choice(name, "routing", self.routing, ROUTINGS)
        check_choice(name, "score", self.score, SCORES)
        check_choice(name, "group_score", self.group_score, GROUP_SCORES)
        factor = self.scaling_factor
        if factor != "unit" and not (is_number(factor) and math.isfinite(factor) and factor > 0):
            raise ValueError(f"{name}: scaling_factor must be a positive number or 'unit', got {factor!r}")
        self._check_groups(name)
        return self

    def _check_groups(self, name: str) -> None:
        check_integer(name, "num_groups", self.num_groups)
        check_integer(name, "kept_groups", self.kept_groups)
        if self.num_experts % self.num_groups:
            raise ValueError(
                f"{name}: num_groups must divide num_experts = {self.num_experts}, got {self.num_groups}"
            )
        if self.kept_groups > self.num_groups:
            raise ValueError(
                f"{name}: kept_groups must be at most num_groups = {self.num_groups}, got {self.kept_groups}"
            )
        size = self.num_experts // self.num_groups
        if self.k > self.kept_groups * size:
            raise ValueError(
                f"{name}: k must be at most the {self.kept_groups * size} experts of the kept groups, "
                f"got {self.k}"
            )
        if self.limits_groups and self.group_score == "top2" and size < 2:
            raise ValueError(
                f"{name}: group_score='top2' needs two experts in a group, got {size}; use group_score='max'"
            )

    @property
    def limits_groups(self) -> bool:
        """Whether a token can use only some groups of experts."""
        return self.kept_groups < self.num_groups

    @property
    def factor(self) -> float:
        """The factor of the weights; ``"unit"`` makes each weight 1 if all logits are zero."""
        if self.scaling_factor != "unit":
            return float(self.scaling_factor)
        if self.renormalise:
            return float(self.k)
        if self.routing in ("straight_through", "sampled"):
            return 1.0
        if self.routing in ("sigmoid_topk", "sparse"):
            return self.num_experts * self.kept_groups / self.num_groups / self.k
        at_zero = {"softmax": 1 / self.num_experts, "sigmoid": 0.5, "sqrtsoftplus": math.sqrt(math.log(2))}
        return 1 / at_zero[self.score]


def check_rule_temperature(name: str, routing: str, temperature: float) -> None:
    """Check the temperature, which ``routing="topk"`` has not."""
    check_temperature(name, temperature)
    if routing == "topk" and (isinstance(temperature, Tensor) or temperature != 1.0):
        raise ValueError(f"{name}: routing='topk' has no temperature, got {temperature}")


def chosen_estimator(
    name: str, routing: str, estimator: str | Estimator | None, design: str | None
) -> Estimator | None:
    """The estimator for ``routing="sampled"``, None for the others."""
    if routing != "sampled":
        for argument, value in (("estimator", estimator), ("design", design)):
            if value is not None:
                raise ValueError(f"{name}: {argument} is for routing='sampled', got routing={routing!r}")
        return None
    options = {} if design is None else {"design": design}
    chosen = estimators.get(estimator or "sampled_straight_through", name, **options)
    if chosen.needs_losses:
        raise ValueError(
            f"{name}: estimator must give a gradient through its sample, got {chosen.name!r}, "
            "which needs losses"
        )
    return chosen
