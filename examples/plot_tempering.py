"""
From uniform to hard
====================

Sigmoid top-k has a temperature, as softmax does. A high temperature spreads the budget evenly, a low one
gives the hard top-k, and at every temperature the weights sum to k. The threshold depends on the scores: it
is the only shift that makes the sum equal k.
"""

import matplotlib.pyplot as plt
import torch

import khot

scores = torch.tensor([2.4, 1.9, 1.6, 1.3, 1.2, 0.9, 0.5, 0.3, -0.1, -0.4, -0.9, -1.5])
k = 4
temperatures = [5.0, 1.0, 0.3, 0.05]

fig, axes = plt.subplots(1, 4, figsize=(11, 2.6), sharey=True, layout="constrained")
for ax, temperature in zip(axes, temperatures, strict=True):
    weights = khot.sigmoid_topk(scores, k, temperature=temperature)
    chosen = khot.hard_topk(scores, k).bool()
    ax.bar(range(len(scores)), weights, color=["#2a6f97" if c else "#a9d6e5" for c in chosen])
    ax.set_title(f"temperature {temperature:g}, sum {weights.sum():.3f}", fontsize=10)
    ax.set_xticks([])
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel(f"weight (k = {k})")
fig.supxlabel("twelve scores in descending order; dark: the hard top four", fontsize=10)
plt.show()
