"""How long a training step takes with sparse weights, as a multiple of that of the dense network."""

# pyright: basic
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from khot.apps.sparse import sparsify
from khot.compare.cost.timing import Budget, compare
from khot_bench.reproduce.ledger import Numbers
from khot_bench.reproduce.sparse_models import BATCH, NETWORKS, RATE

__all__ = ["STEPS", "time_steps"]

STEPS: dict[str, dict[str, Any] | None] = {
    "dense": None,
    "straight-through, every 10 steps": {"every": 10},
    "straight-through, every step": {"every": 1},
    "sigmoid, every 10 steps": {"every": 10, "method": "sigmoid", "temperature": 0.3},
    "sigmoid, every step": {"every": 1, "method": "sigmoid", "temperature": 0.3},
    "Top-KAST, every 10 steps": {"every": 10, "backward_density": 0.2},
}
TEN = 10
"""Steps in one measured call, so that a selection every 10 steps is in each."""


def time_steps(network: str, scope: str, quick: bool) -> Numbers:
    """Ratios to the dense step, in one run, alternating; quartiles beside them."""
    made = {name: _steps(network, scope, options) for name, options in STEPS.items()}
    baseline = _steps(network, scope, None)
    budget = Budget(0.01, 2, 3, 0.1) if quick else Budget(0.01, 6, 40, 1.5)
    numbers: Numbers = {}
    for name, timing in compare(baseline, made, budget).items():
        if isinstance(timing, str):
            raise RuntimeError(f"{name}: {timing}")
        numbers[f"ratio {name}"], numbers[f"low {name}"] = timing.ratio, timing.ratio_low
        numbers[f"high {name}"], numbers[f"seconds {name}"] = timing.ratio_high, timing.seconds / TEN
    return numbers


def _steps(network: str, scope: str, options: dict[str, Any] | None) -> Callable[[], object]:
    torch.manual_seed(0)
    model = NETWORKS[network]()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE / 100, momentum=0.9, nesterov=True)
    if options is not None:
        sparsify(model, 0.05, scope=scope, **options).follow(optimizer)  # pyright: ignore
    images, labels = torch.randn(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))

    def ten_steps() -> None:
        for _ in range(TEN):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return ten_steps
