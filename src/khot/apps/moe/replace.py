"""Replace the routing of transformers 5 models in place: the same parameters, another routing.

A gate keeps its identity, parameters, hooks, names in ``state_dict`` and parallel plans; only its class
changes, to a subclass of the original one. So recorded router logits, ``save_pretrained``, ``generate``,
gradient checkpointing, ``deepcopy`` and ``torch.save`` still work. ``restore_router`` sets the original class
again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from khot.apps.moe._choice import checked_replay
from khot.apps.moe._gate_recipe import Recipe, find_recipe, tensors_of
from khot.apps.moe._masks import real_of
from khot.apps.moe._rule import Routing, Rule, check_rule_temperature, chosen_estimator
from khot.apps.moe._scores import wide_linear
from khot.apps.moe._weights import finished, routed
from khot.apps.moe.correction import CountsExperts
from khot.estimators import Estimator
from khot.relaxations._plain_arguments import check_switch

__all__ = ["replace_router", "restore_router"]

_NAMES = ("gate", "router")
_OWN = (
    "khot_recipe",
    "khot_rule",
    "khot_temperature",
    "khot_float32",
    "expert_counts",
    "replayed_indices",
    "token_mask",
)


def replace_router(
    model: nn.Module,
    routing: Routing = "topk",
    *,
    renormalise: bool | None = None,
    scaling_factor: float | Literal["unit"] | None = None,
    temperature: float = 1.0,
    float32: bool = False,
    estimator: str | Estimator | None = None,
    design: str | None = None,
) -> tuple[str, ...]:
    """Give the routers of a transformers 5 model another routing; see :class:`TopKRouter` for the routings.

    A router is a module named ``gate`` or ``router`` beside ``experts``, whose forward returns ``(logits,
    weights, indices)``: Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, DeepSeek-V2 and V3, gpt-oss and related models.
    How it computes is found by trial. With ``routing="topk"`` and otherwise default arguments, routers choose
    and weigh experts as before, bit for bit, with three exceptions: ties go by index; the best expert comes
    first (DeepSeek has no order, so a sum over experts may differ in its last bit); and
    :func:`balance_experts` can train a correction bias.

    A second call starts from the model's original routers, not from the last replacement.

    Args:
        model: the model, changed in place: all its routers, or none if one of them does not fit.
        routing: the routing for all routers.
        renormalise: divide the weights of a token by their sum. By default ``"topk"`` does what the router
            did. The other routings do not renormalise, because that would remove the gradient they learn
            from.
        scaling_factor: factor of the weights; by default the router's own.
        temperature: τ of the soft routings.
        float32: compute logits in float32, even in a bfloat16 model and under autocast; by default as the
            router does.
        estimator: the gradient estimator of ``"sampled"``.
        design: the sampling design of ``"sampled"``.

    Returns:
        The names of the routers.

    Example:
        >>> from transformers import MixtralConfig
        >>> from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
        >>> config = MixtralConfig(hidden_size=8, intermediate_size=16, num_local_experts=4)
        >>> replace_router(MixtralSparseMoeBlock(config), "sigmoid_topk", temperature=0.5)
        ('gate',)
    """
    name = "replace_router"
    check_switch(name, "float32", float32)
    if renormalise is not None:
        check_switch(name, "renormalise", renormalise)
    gates = _gates(model)
    if not gates:
        raise ValueError(
            f"{name}: {type(model).__name__} has no module 'gate' or 'router' beside 'experts'; "
            "routers of transformers 4 stand inside the block and cannot be replaced"
        )
    check_rule_temperature(name, routing, temperature)
    if isinstance(temperature, Tensor) and temperature.numel() != 1:
        raise ValueError(
            f"{name}: temperature must be one number, got a tensor of shape {tuple(temperature.shape)}"
        )
    chosen = chosen_estimator(name, routing, estimator, design)
    made: list[tuple[nn.Module, type[nn.Module], Recipe, Rule]] = []
    for gate in gates.values():
        _check_forward(name, gate)
        base = _own_class(gate)
        recipe = _recipe(gate, name)
        rule = Rule(
            recipe.num_experts,
            recipe.k,
            routing,
            "softmax" if recipe.score == "softmax of the chosen" else recipe.score,
            renormalise=(recipe.renormalise and routing == "topk") if renormalise is None else renormalise,
            scaling_factor=recipe.scaling_factor if scaling_factor is None else scaling_factor,
            num_groups=recipe.num_groups,
            kept_groups=recipe.kept_groups,
            group_score=recipe.group_score,
            estimator=chosen,
        ).checked(name)
        if routing == "topk":
            recipe = replace(recipe, renormalise=rule.renormalise, scaling_factor=rule.factor)
            if not rule.renormalise and recipe.score == "softmax of the chosen":
                recipe = replace(
                    recipe, score="softmax"
                )  # the softmax over all, as it was before the division
        elif routing == "sampled" and tensors_of(gate)[2] is not None:
            raise ValueError(
                f"{name}: {base.__name__} has a correction bias, which routing='sampled' cannot use"
            )
        made.append((gate, base, recipe, rule))
    for gate, base, recipe, rule in made:
        gate.__class__ = _routed_class(base)
        changed = cast("Any", gate)
        changed.khot_recipe, changed.khot_rule = recipe, rule
        changed.khot_temperature, changed.khot_float32 = float(temperature), float32
        changed.expert_counts = torch.zeros(recipe.num_experts, device=tensors_of(gate)[0].device)
    return tuple(gates)


def restore_router(model: nn.Module) -> tuple[str, ...]:
    """Undo :func:`replace_router`.

    Args:
        model: a model whose routers were replaced; changed in place.

    Returns:
        The names of the routers that were restored.

    Example:
        >>> from transformers import MixtralConfig
        >>> from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
        >>> config = MixtralConfig(hidden_size=8, intermediate_size=16, num_local_experts=4)
        >>> model = MixtralSparseMoeBlock(config)
        >>> replaced = replace_router(model, "sigmoid_topk")
        >>> restore_router(model)
        ('gate',)
    """
    routers = {name: gate for name, gate in _gates(model).items() if isinstance(gate, _Routed)}
    for gate in routers.values():
        _check_forward("restore_router", gate)
    for gate in routers.values():
        gate.__class__ = _own_class(gate)  # pyright: ignore[reportAttributeAccessIssue]
        for attribute in _OWN:
            gate.__dict__.pop(attribute, None)
    return tuple(routers)


class _Routed(CountsExperts):
    """What a replaced gate adds to its class."""

    khot_replaces: type[nn.Module]
    khot_recipe: Recipe
    khot_rule: Rule
    khot_temperature: float
    khot_float32: bool

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Raw logits (T, experts), weights and indices (T, k)."""
        recipe, rule = self.khot_recipe, self.khot_rule
        weight, offset, bias = tensors_of(self)
        if self.khot_float32:
            logits = wide_linear(hidden_states.reshape(-1, weight.shape[1]), weight, offset)
        else:
            logits = recipe.logits(hidden_states, weight, offset)
        name = type(self).__name__
        given, mask = self.replayed_indices, self.token_mask
        if given is not None:
            given = checked_replay(name, given, logits.shape[0], rule)
        if mask is not None:
            mask = real_of(name, mask, logits.shape[0])
        if rule.routing == "topk" and given is None:
            weights, indices = recipe.choose(logits, bias)
        elif rule.routing == "topk":
            assert given is not None
            weights, indices = recipe.weigh(recipe.scores(logits), given), given
        else:
            weights, indices = routed(
                logits,
                rule,
                temperature=self.khot_temperature,
                bias=bias,
                given=given,
                draw=self.training,
            )
            weights = finished(weights, rule, None)
        if mask is not None:
            weights = torch.where(mask.unsqueeze(-1), weights, 0)
        if self.training and bias is not None:
            self.count_experts(indices, mask)
        dtype = hidden_states.dtype if self.khot_float32 else logits.dtype
        return logits, weights.to(dtype) if recipe.cast_back else weights, indices

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled by the class it was made from, which others can import."""
        return _rebuilt, (_own_class(self),), self.__dict__


@functools.cache
def _routed_class(base: type[nn.Module]) -> type[nn.Module]:
    body = {"__module__": __name__, "__doc__": base.__doc__, "khot_replaces": base}
    return type(f"Routed{base.__name__}", (_Routed, base), body)


def _rebuilt(base: type[nn.Module]) -> nn.Module:
    made = _routed_class(base)
    return made.__new__(made)


def _check_forward(name: str, gate: nn.Module) -> None:
    """A forward that hangs on the gate itself hides that of any class."""
    if "forward" in vars(gate):
        raise TypeError(
            f"{name}: {type(gate).__name__} has a forward of its own, as hooks of accelerate set it; "
            "call this before they are added, or after they are removed"
        )


def _own_class(gate: nn.Module) -> type[nn.Module]:
    """The class of a gate before it was replaced."""
    return gate.khot_replaces if isinstance(gate, _Routed) else type(gate)


_FOUND: dict[Any, Recipe] = {}


def _recipe(gate: nn.Module, caller: str) -> Recipe:
    """The recipe of a gate's own class, whatever it is now; found once for gates that are alike."""
    base = _own_class(gate)
    state = {key: value for key, value in vars(gate).items() if key not in (*_OWN, "training")}
    simple = (bool, int, float, str)
    settings = {
        name: value if isinstance(value, simple) else getattr(value, "__name__", type(value).__name__)
        for name, value in {**state, **cast("Any", gate)._modules}.items()
    }
    shapes = tuple((name, t.shape) for name, t in gate.named_parameters(recurse=False))
    key = (base, tuple(sorted((name, str(value)) for name, value in settings.items())), shapes)
    if key not in _FOUND:
        plain = base.__new__(base)
        plain.__dict__.update(state)
        _FOUND[key] = find_recipe(plain, caller)
    return _FOUND[key]


def _gates(model: nn.Module) -> dict[str, nn.Module]:
    """Modules called gate or router that stand beside experts."""
    found: dict[str, nn.Module] = {}
    modules = cast("Iterable[tuple[str, nn.Module]]", cast("Any", model).named_modules())
    for name, module in modules:
        for child in _NAMES:
            gate = getattr(module, child, None)
            if isinstance(gate, nn.Module) and isinstance(getattr(module, "experts", None), nn.Module):
                found[f"{name}.{child}" if name else child] = gate
    return found
