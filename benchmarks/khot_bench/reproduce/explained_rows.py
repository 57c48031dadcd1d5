r"""Six problems in which it is known which features decide each row (Chen et al. 2018; Yoon et al. 2019).

Eleven independent normal features; P(y = 1) = 1/(1 + g(x)), where by problem log g is

    syn1: x₁x₂        syn2: Σ x₃² … x₆² − 4        syn3: −10 sin(0.2 x₇) + |x₈| + x₉ + e^{−x₁₀} − 2.4

and in syn4, syn5, syn6 the sign of x₁₁ says which of two of these holds: 1 or 2, 1 or 3, 2 or 3.
"""

# pyright: basic
from __future__ import annotations

import torch
from torch import Tensor, nn

from khot.apps.features import InstanceSelector
from khot.schedules import TemperatureScheduler, exponential
from khot_bench.reproduce.ledger import Numbers, Settings

__all__ = ["METHODS", "PROBLEMS", "explain", "problem"]

FEATURES, ROWS, BATCH, WIDTH = 11, 10_000, 256, 100
_PARTS = {1: (0, 1), 2: (2, 3, 4, 5), 3: (6, 7, 8, 9)}
PROBLEMS = {"syn1": (1,), "syn2": (2,), "syn3": (3,), "syn4": (1, 2), "syn5": (1, 3), "syn6": (2, 3)}

METHODS = {
    "sigmoid, soft": {"method": "sigmoid"},
    "sigmoid, straight-through": {"method": "sigmoid", "hard": True},
    "Gumbel top-k, straight-through": {"method": "gumbel", "hard": True},
}


def _log_odds(x: Tensor, part: int) -> Tensor:
    if part == 1:
        return x[:, 0] * x[:, 1]
    if part == 2:
        return x[:, 2:6].square().sum(1) - 4
    return -10 * torch.sin(0.2 * x[:, 6]) + x[:, 7].abs() + x[:, 8] + torch.exp(-x[:, 9]) - 2.4


def problem(name: str, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, labels, and which features decide each row (boolean)."""
    x = torch.randn(rows, FEATURES, generator=generator)
    parts = PROBLEMS[name]
    second = x[:, 10] >= 0 if len(parts) > 1 else torch.zeros(rows, dtype=torch.bool)
    truth = torch.zeros(rows, FEATURES, dtype=torch.bool)
    log_odds = torch.zeros(rows)
    for place, part in enumerate(parts):
        here = second == bool(place)
        log_odds = torch.where(here, _log_odds(x, part), log_odds)
        for feature in _PARTS[part]:
            truth[:, feature] |= here
    if len(parts) > 1:
        truth[:, 10] = True
    return x, torch.bernoulli(torch.sigmoid(-log_odds), generator=generator).long(), truth


def explain(settings: Settings) -> Numbers:
    """Train a selector and what reads its selection; how many of the selected features decide a row.

    k is the largest number of deciding features. Where a row has fewer, some must be false.
    """
    generator = torch.Generator().manual_seed(settings["seed"])
    x, y, _ = problem(settings["problem"], ROWS, generator)
    tests, answers, truth = problem(settings["problem"], ROWS, generator)
    k = int(truth.sum(1).max())
    numbers = {"k": float(k), "least false": (k - truth.sum(1)).float().mean().item() / k}
    if settings["method"] == "random":
        chosen = torch.rand(tests.shape, generator=generator).argsort(1)[:, :k]
        return numbers | _rates(chosen, truth)
    torch.manual_seed(settings["seed"])
    selector = InstanceSelector(_network(FEATURES), k, **METHODS[settings["method"]])
    reader = _network(2)
    optimizer = torch.optim.Adam([*selector.parameters(), *reader.parameters()], lr=1e-3, fused=True)
    steps = settings["steps"]
    scheduler = TemperatureScheduler(selector, exponential(1.0, 0.1, int(0.8 * steps)))
    for _ in range(steps):
        rows = torch.randint(ROWS, (BATCH,), generator=generator)
        loss = nn.functional.cross_entropy(reader(selector(x[rows]).values), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    selector.eval()
    with torch.no_grad():
        guesses = reader(selector(tests).values).argmax(1)
        numbers["accuracy"] = (guesses == answers).double().mean().item()
        return numbers | _rates(selector.selected(tests), truth)


def _network(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs)
    )


def _rates(chosen: Tensor, truth: Tensor) -> Numbers:
    """The share of deciding features that were selected, and of selected ones that do not decide."""
    hits = truth.gather(1, chosen).sum(1).double()
    return {
        "true positives": (hits / truth.sum(1)).mean().item(),
        "false discoveries": (1 - hits / chosen.shape[1]).mean().item(),
    }
