"""
Ranks that soften
=================

Soft ranks are the point of the permutahedron nearest to the scores divided by the temperature. At a low
temperature they equal the ranks. As it grows, first close scores are pooled, then groups of them, and all
ranks approach their mean, (n + 1)/2; their sum never changes. With the squared norm (l2), pooled ranks
differ by the difference of their scores divided by the temperature. With the Kullback–Leibler divergence
(kl), the logarithms of the ranks do, and small ranks soften before large ones.
"""

import matplotlib.pyplot as plt
import torch

import khot

scores = torch.tensor([-1.6, -1.2, -1.05, -0.3, 0.35, 0.5, 1.3, 2.1], dtype=torch.float64)
n = len(scores)
temperatures = torch.logspace(-2, 2, 600, dtype=torch.float64)
colours = plt.get_cmap("viridis")(torch.linspace(0.0, 0.92, n).numpy())

fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
for ax, regularization in zip(axes, ["l2", "kl"], strict=True):
    rows = scores.expand(len(temperatures), n)
    ranks = khot.soft_rank(rows, temperature=temperatures, regularization=regularization)
    for i in range(n):
        ax.semilogx(temperatures, ranks[:, i], color=colours[i], linewidth=2)
        ax.plot(temperatures[0], ranks[0, i], "o", color=colours[i], markersize=5, clip_on=False)
    ax.axhline((n + 1) / 2, color="0.6", linewidth=1, linestyle=":", zorder=0)
    ax.set_title(f'regularization="{regularization}"', fontsize=10)
    ax.set_xlabel("temperature")
    ax.set_xlim(temperatures[0].item(), temperatures[-1].item())
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("soft rank")
axes[0].set_yticks(range(1, n + 1))
for ax in axes:
    ax.text(0.05, (n + 1) / 2 + 0.08, "mean rank", color="0.4", fontsize=8)
    for i in range(n):
        label = f"score {scores[i]:g}" if i == n - 1 else f"{scores[i]:g}"
        ax.annotate(
            label.replace("-", "−"),
            (temperatures[0], i + 1),
            xytext=(8, 4),
            textcoords="offset points",
            color=colours[i],
            fontsize=8,
        )
plt.show()
