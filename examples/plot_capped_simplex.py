"""
Paths through the capped simplex
================================

The weights of three scores with k = 2 lie in a triangle. Its corners are the three ways to select two, and
its centre is the uniform weights. As the temperature falls, each relaxation takes its own path from the
centre to the corner of the hard top-k. The sparse path is a straight line that runs into an edge (one weight
is exactly 1) and follows it; the smooth ones reach the corner only in the limit.
"""

import matplotlib.pyplot as plt
import torch

import khot

scores = torch.tensor([1.0, 0.55, 0.0], dtype=torch.float64)
temperatures = torch.logspace(1.5, -2, 200, dtype=torch.float64)
corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]], dtype=torch.float64)
labels = ["1 and 2", "1 and 3", "2 and 3"]  # what the corners select
omitted = [2, 1, 0]  # the score each corner leaves out


def position(weights):
    """The point of the triangle: each corner counts by how much its omitted score is left out."""
    return (1 - weights[..., omitted]) @ corners


fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
axes[0].fill(*corners.T, color="#f1f4f6")
axes[0].plot(*torch.cat([corners, corners[:1]]).T, color="0.6", linewidth=1)
styles = {
    "sigmoid": ("sigmoid", {}, "#2a6f97"),
    "laplace": ("laplace", {}, "#7b2cbf"),
    "normal": ("normal", {}, "#2d936c"),
    "sparse": ("sparse", {}, "#d1495b"),
    "sparse, norm 1.2": ("sparse", {"norm": 1.2}, "#edae49"),
}
for name, (method, options, colour) in styles.items():
    weights = khot.topk(scores.expand(len(temperatures), 3), 2, method, temperature=temperatures, **options)
    axes[0].plot(*position(weights).T, color=colour, label=name)
    axes[1].semilogx(temperatures, weights[:, 1], color=colour, label=name)
for corner, label, (dx, dy) in zip(corners, labels, [(0, -14), (0, -14), (0, 6)], strict=True):
    axes[0].annotate(label, corner, xytext=(dx, dy), textcoords="offset points", ha="center")
axes[0].plot(*position(torch.full((3,), 2 / 3, dtype=torch.float64)), "o", color="0.3", markersize=4)
axes[0].set_title("the weights, from uniform (dot) to hard (corner)", fontsize=10)
axes[0].set_aspect("equal")
axes[0].axis("off")
axes[0].legend(fontsize=8, loc="upper right")
axes[1].invert_xaxis()
axes[1].set_xlabel("temperature")
axes[1].set_title("weight of the second score (0.55)", fontsize=10)
axes[1].spines[["top", "right"]].set_visible(False)
plt.show()
