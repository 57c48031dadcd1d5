"""
Value and gradient for two scores
=================================

With n = 2 and k = 1 a relaxation is one curve: the weight of the first score as a function of the difference
d of the two. The picture shows all of them at temperature 1, and the hard top-k (dotted), whose gradient is
zero wherever it exists. Sigmoid top-k gives :math:`\\sigma(d/2\\tau)`; many others are sigmoids too for two
scores and differ only for more. Random operators are shown as the mean of many draws.
"""

import math

import matplotlib.pyplot as plt
import torch

import khot
from khot.relaxations import registry

difference = torch.linspace(-6, 6, 241)
x = torch.stack([difference, torch.zeros_like(difference)], -1)


def curve(spec):
    """Weight of the first score and its gradient."""
    if not spec.stochastic:
        scores = x.clone().requires_grad_()
        y = spec.weights(scores, 1)[:, 0]
        return y.detach(), torch.autograd.grad(y.sum(), scores)[0][:, 0]
    draws = 2000 if spec.name == "gumbel" else 1
    options = {"generator": torch.Generator().manual_seed(0)}
    if spec.name == "perturbed":
        options["samples"] = 2000
    scores = x.repeat(draws, 1).requires_grad_()
    y = spec.weights(scores, 1, **options)[:, 0]
    (slope,) = torch.autograd.grad(y.sum(), scores)
    return y.detach().view(draws, -1).mean(0), slope[:, 0].view(draws, -1).mean(0)


order = ["sigmoid", "laplace", "normal", "sparse"]
names = order + sorted(name for name in registry.names() if name not in order)
columns = 4
rows = math.ceil(len(names) / columns)
fig, axes = plt.subplots(
    rows, columns, figsize=(9.6, 1.9 * rows), sharex=True, sharey=True, layout="constrained"
)
step = khot.hard_topk(x, 1)[:, 0]
for ax, name in zip(axes.flat, names, strict=False):
    value, gradient = curve(registry.get(name))
    ax.plot(difference, step, ":", color="0.6", linewidth=1)
    ax.plot(difference, value, color="C0", label="weight")
    ax.plot(difference, gradient, color="C1", label="gradient")
    ax.set_title(name.replace("_", " "), fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
for ax in axes.flat[len(names) :]:
    ax.axis("off")
for ax in axes[-1]:
    ax.set_xlabel("$x_1 - x_2$")
axes[0, 0].legend(frameon=False, fontsize=8)
axes[0, 0].set_ylim(-0.05, 1.1)
plt.show()
