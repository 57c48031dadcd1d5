"""The numbers behind the page: weights, Jacobian and gradient of each operator, samples of each design."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from khot.designs import get as get_design
from khot.explore.state import State
from khot.relaxations import hard_topk, registry, sigmoid_topk

__all__ = ["computed"]


def computed(state: State) -> dict[str, Any]:
    """The data that the page draws: numbers, lists and strings; all numbers are finite.

    An operator or a design that does not support the state has an ``error`` instead.
    """
    scores = torch.tensor(state.scores, dtype=torch.float64)
    return {
        "hard": _as_list(hard_topk(scores, round(state.k))),
        "operators": [_tried(_operator, name, scores, state) for name in state.methods],
        "designs": [_tried(_design, name, scores, state) for name in state.designs],
    }


def _tried(
    compute: Callable[[str, Tensor, State], dict[str, Any]], name: str, scores: Tensor, state: State
) -> dict[str, Any]:
    try:
        return {"name": name, **compute(name, scores, state)}
    except (ValueError, TypeError, NotImplementedError) as error:  # such as a k that must be whole
        return {"name": name, "error": str(error)}


def _operator(name: str, scores: Tensor, state: State) -> dict[str, Any]:
    spec = registry.get(name)
    leaf = scores.clone().requires_grad_()
    options: dict[str, Any] = {}
    if spec.stochastic:
        options["generator"] = torch.Generator().manual_seed(state.seed)
    k = state.k if spec.real_k else _whole(name, state.k)
    weights = spec.weights(leaf, k, temperature=state.temperature, **options)
    (gradient,) = torch.autograd.grad(_loss(state.loss, weights, scores), leaf, retain_graph=True)
    rows = [torch.autograd.grad(weight, leaf, retain_graph=True)[0] for weight in weights]
    jacobian = torch.stack(rows)
    if not all(part.isfinite().all() for part in (weights, gradient, jacobian)):
        raise ValueError(f"{name}: a weight or a gradient is not finite here")
    return {
        "weights": _rounded(weights),
        "sum": float(weights.detach().sum()),
        "jacobian": _rounded(jacobian),
        "gradient": _rounded(gradient),
    }


def _loss(name: str, weights: Tensor, scores: Tensor) -> Tensor:
    if name == "position":
        return (weights * torch.arange(len(weights), dtype=weights.dtype)).sum() / len(weights)
    if name == "square":
        return weights.square().sum() / 2
    if name == "entropy":
        inside = weights.clamp(1e-12, 1 - 1e-12)
        return -(inside * inside.log() + (1 - inside) * (1 - inside).log()).sum()
    kept = weights.detach().sum().round().int()
    order = scores.argsort(descending=True, stable=True)
    return weights[order[min(int(kept), len(weights) - 1)]]


def _design(name: str, scores: Tensor, state: State) -> dict[str, Any]:
    kind = get_design(name)
    k = state.k if kind.takes_fractions else _whole(name, state.k)
    if "probs" in kind.parameters:
        made = kind(k, probs=sigmoid_topk(scores, k, temperature=state.temperature))
    else:
        made = kind(k, logits=scores / state.temperature)  # pyright: ignore[reportCallIssue]
    samples = made.sample((state.draws,), generator=torch.Generator().manual_seed(state.seed))
    return {
        "probs": _rounded(sigmoid_topk(scores, k, temperature=state.temperature)),
        "frequency": _rounded(samples.mean(0)),
        "samples": _as_list(samples[:20].int()),
        "exact": kind.exact_inclusion,
    }


def _whole(name: str, k: float) -> int:
    if k != int(k):
        raise ValueError(f"{name}: k must be a whole number, got {k:g}")
    return int(k)


def _rounded(values: Tensor) -> list[Any]:
    return _as_list((values.detach() * 1e6).round() / 1e6 + 0.0)


def _as_list(values: Tensor) -> list[Any]:
    return cast("list[Any]", values.tolist())  # pyright: ignore[reportUnknownMemberType]
