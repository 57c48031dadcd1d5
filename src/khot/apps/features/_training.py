r"""How gates learn which features to keep: a small network sees the features through them while τ falls:

    min over scores s, network f   Σ_r w_r ℓ(f(x_r ⊙ y), t_r) / Σ_r w_r,   y = top-k weights of s at τ,

with Adam, cosine learning rates, and a temperature that falls geometrically over the first 80 % of the steps.
The budget falls too, from all features to k over the first 40 %: first the network learns from all of them,
and features are dropped by their worth beside the others. (A method that takes only whole k has k from the
start.) The gates multiply the columns of the first layer instead of the data, which gives the same result
and costs less. Cost of a step: that of the network on a batch, and one top-k of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from khot.apps.features._denormals import denormals_flushed
from khot.relaxations.facade import topk
from khot.relaxations.registry import get
from khot.schedules import Schedule, exponential

__all__ = ["Recipe", "initial_scores", "new_network", "train_gates"]

_FALLING = 0.8
_DROPPING = 0.4
_LEAST_RATE = 0.05
_SPREAD = 0.01


@dataclass(frozen=True)
class Recipe:
    """The settings of a fit: see :class:`khot.apps.features.TopKSelector`."""

    k: int
    method: str
    temperature: float
    final_temperature: float
    steps: int
    batch: int
    rate: float
    score_rate: float
    penalty: float


def new_network(inputs: int, hidden: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    """A linear map, or a network with one hidden layer; torch's usual initial weights, from ``generator``."""
    sizes = [inputs, hidden, outputs] if hidden else [inputs, outputs]
    layers: list[nn.Module] = []
    for n, m in pairwise(sizes):
        # On no device at first: torch's own generator draws nothing.
        layer = nn.Linear(n, m, device="meta", dtype=torch.float32).to_empty(device="cpu")
        bound = 1 / math.sqrt(n)
        for parameter in layer.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def initial_scores(features: int, method: str, generator: torch.Generator) -> Tensor:
    """Zeros; from ``generator`` a little apart where the method has no gradient at equal scores."""
    equal = torch.zeros(4, requires_grad=True)
    weights = topk(equal, 2, method)
    (slope,) = torch.autograd.grad(weights @ torch.tensor([3.0, 1.0, 0.0, 0.0]), equal)
    if slope.any():
        return torch.zeros(features)
    return _SPREAD * torch.randn(features, generator=generator)


def train_gates(
    x: Tensor,
    target: Tensor,
    weights: Tensor,
    usable: Tensor,
    network: nn.Sequential,
    scores: Tensor,
    recipe: Recipe,
    generator: torch.Generator,
    report: Callable[[int, float, float], None],
) -> list[float]:
    """Train ``network`` and ``scores`` in place; returns the loss of each step.

    Args:
        x: rows (n, d), standardised.
        target: classes (n,) or numbers (n, outputs).
        weights: weights of the rows, (n,), with mean 1.
        usable: which features may be selected, (d,).
        network: the network; its first layer is linear.
        scores: (d,), a leaf that requires a gradient.
        recipe: the settings.
        generator: source of the batches; if a batch takes all rows, nothing is drawn.
        report: called now and then with the step, its loss and its temperature.
    """
    first = network[0]
    assert isinstance(first, nn.Linear)
    rest = network[1:]
    count, steps = len(x), recipe.steps
    parameters = [
        {"params": list(network.parameters()), "lr": recipe.rate, "weight_decay": recipe.penalty},
        {"params": [scores], "lr": recipe.score_rate},
    ]
    optimizer = torch.optim.Adam(parameters, fused=True)
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _LEAST_RATE + (1 - _LEAST_RATE) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    falling = max(1, round(_FALLING * steps))
    temperature = exponential(recipe.temperature, recipe.final_temperature, falling)
    budget = _budget(recipe, int(usable.sum()))
    losses: list[float] = []
    with denormals_flushed():
        for step in range(steps):
            if recipe.batch < count:
                rows = torch.randint(count, (recipe.batch,), generator=generator).to(x.device)
                batch, wanted, importance = x[rows], target[rows], weights[rows]
            else:
                batch, wanted, importance = x, target, weights
            gates = topk(scores, budget(step), recipe.method, temperature=temperature(step), mask=usable)
            output = rest(nn.functional.linear(batch, first.weight * gates, first.bias))
            loss = (importance * _row_losses(output, wanted)).mean()
            optimizer.zero_grad()
            loss.backward()  # pyright: ignore[reportUnknownMemberType]
            optimizer.step()  # pyright: ignore[reportUnknownMemberType]
            rates.step()
            losses.append(loss.item())
            if (step + 1) % max(1, steps // 10) == 0:
                report(step + 1, losses[-1], temperature(step))
    return losses


def _budget(recipe: Recipe, usable: int) -> Schedule:
    if recipe.k >= usable or not get(recipe.method).real_k:
        return lambda step: recipe.k
    return exponential(usable, recipe.k, max(1, round(_DROPPING * recipe.steps)))


def _row_losses(output: Tensor, target: Tensor) -> Tensor:
    if target.is_floating_point():
        return (output - target).square().mean(-1)
    return nn.functional.cross_entropy(output, target, reduction="none")
