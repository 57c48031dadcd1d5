"""
One π, five designs
===================

Designs with the same inclusion probabilities draw different sets. The picture shows the covariance of each
pair of units, :math:`\\pi_{ij} - \\pi_i \\pi_j`, and the entropy of each design. Systematic sampling has
pairs that attract each other (red); tree pivotal sampling keeps neighbours apart; conditional Poisson
sampling has the largest entropy. The two designs in random order have no closed form, so their covariances
and entropies come from 200000 draws.
"""

import matplotlib.pyplot as plt
import torch

import khot
from khot.designs import ConditionalPoisson, RandomSystematic, RandomTreePivotal, Systematic, TreePivotal

n, k = 12, 4
torch.manual_seed(0)
pi = khot.sigmoid_topk(torch.linspace(-1.5, 1.5, n, dtype=torch.float64), k)


def covariance_and_entropy(design):
    """In closed form, or from draws."""
    made = design(k, probs=pi)
    try:
        return made.covariance_matrix, made.entropy()
    except NotImplementedError:
        draws = made.sample((200_000,))
        share = draws.unique(dim=0, return_counts=True)[1] / len(draws)
        return torch.cov(draws.T), torch.special.entr(share).sum()


designs = [Systematic, RandomSystematic, TreePivotal, RandomTreePivotal, ConditionalPoisson]
fig, axes = plt.subplots(1, len(designs), figsize=(13, 3.2), layout="constrained")
for axis, design in zip(axes, designs, strict=True):
    covariance, entropy = covariance_and_entropy(design)
    covariance.fill_diagonal_(0)
    image = axis.imshow(covariance, cmap="RdBu_r", vmin=-0.12, vmax=0.12)
    axis.set_title(f"{design.__name__}\nentropy {entropy:.2f}", fontsize=9)
    axis.set_xticks([])
    axis.set_yticks([])
fig.colorbar(image, ax=axes, shrink=0.8, label="covariance of two units")
plt.show()
