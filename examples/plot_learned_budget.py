"""
A learned budget, soft and hard
===============================

Five of twenty features matter. Each feature has a gate; the gates are k-hot weights with a learned k. They
should find out how many features matter and which, while the loss charges for every unit of budget.

With soft gates the slopes compensate for the gates: half the weight and twice the slope give the same
prediction for half the price. So the budget keeps falling at a perfect fit. A hard gate (hard forward, the
soft gradient backward) has weights 0 and 1, for which the slopes cannot compensate.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from khot.nn import SigmoidTopK

generator = torch.Generator().manual_seed(0)
true = torch.zeros(20)
true[:5] = torch.tensor([2.0, -2.0, 1.5, -1.5, 1.0])
features = torch.randn(200, 20, generator=generator)
target = features @ true + 0.1 * torch.randn(200, generator=generator)


def fit(*, hard: bool, steps: int = 900) -> tuple[list[float], list[int], float]:
    """The budget in every step, the features selected at last, and the squared error."""
    gate = SigmoidTopK(10, learn_k=True, k_max=20, hard=hard)
    scores = nn.Parameter(torch.zeros(20))
    slope = nn.Parameter(features.T @ target / 200)
    optimiser = torch.optim.Adam([scores, slope, *gate.parameters()], lr=0.02)
    budgets = []
    for _ in range(steps):
        optimiser.zero_grad()
        error = (target - features @ (slope * gate(scores))).square().mean()
        (error + 0.05 * gate.k).backward()
        optimiser.step()
        budgets.append(gate.k.item())
    return budgets, sorted(gate.selected(scores).tolist()), error.item()


fig, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
for hard, color in ((False, "#a9d6e5"), (True, "#2a6f97")):
    budgets, selected, error = fit(hard=hard)
    ax.plot(budgets, color=color, label=f"hard={hard}")
    print(f"hard={hard}: k = {budgets[-1]:.2f}, features {selected}, squared error {error:.3f}")
ax.axhline(5, color="0.6", linewidth=1, linestyle=":")
ax.set_xlabel("step")
ax.set_ylabel("learned k (5 features matter)")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()
