"""
Value and gradient for two scores
=================================

With n = 2 and k = 1 the whole operator is one curve: the weight of the first score as a function of
the difference d of the two. Sigmoid top-k gives :math:`\\sigma(d/2\\tau)`; softmax, which is the same
idea with another entropy, gives :math:`\\sigma(d/\\tau)`. The hard top-k is the step, with a gradient
that is zero everywhere it exists.
"""

import matplotlib.pyplot as plt
import torch

import khot

difference = torch.linspace(-6, 6, 601)
curves = {}
for name, weights in {
    "hard top-k": khot.hard_topk,
    "softmax": lambda x, k: torch.softmax(x, -1),
    "sigmoid top-k, τ = 1": khot.sigmoid_topk,
    "sigmoid top-k, τ = 0.3": lambda x, k: khot.sigmoid_topk(x, k, temperature=0.3),
}.items():
    x = torch.stack([difference, torch.zeros_like(difference)], -1).requires_grad_()
    y = weights(x, 1)[:, 0]
    slope = torch.autograd.grad(y.sum(), x)[0][:, 0] if y.requires_grad else torch.zeros_like(difference)
    curves[name] = (y.detach(), slope)

fig, (value, gradient) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for name, (y, slope) in curves.items():
    style = {"color": "black", "linestyle": ":"} if name.startswith("hard") else {}
    value.plot(difference, y, label=name, **style)
    gradient.plot(difference, slope, **style)
value.set_title("weight of the first score")
gradient.set_title("its gradient in the first score")
for ax in (value, gradient):
    ax.set_xlabel("$x_1 - x_2$")
    ax.spines[["top", "right"]].set_visible(False)
value.legend(frameon=False, fontsize=8)
plt.show()
