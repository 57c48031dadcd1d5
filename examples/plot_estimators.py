"""
Bias and variance of gradient estimators
========================================

A sample of k units has no derivative; an estimator gives it one. The picture compares each estimator with
the exact gradient of an expected loss, over all 210 sets of 4 of 10 units: how far its mean is from the
exact gradient (bias), and how far single estimates are from their mean (standard deviation). All average 4
samples. The loss is not linear in the sample; for an affine loss, straight-through would be exact. Open
marks have no significant bias.
"""

import matplotlib.pyplot as plt
import torch

from khot.estimators import diagnose, get

n, k = 10, 4
generator = torch.Generator().manual_seed(1)
scores = torch.randn(n, dtype=torch.float64, generator=generator)
mixing = torch.randn(n, n, dtype=torch.float64, generator=generator)


def loss(x):
    """A small network with fixed weights."""
    return torch.tanh(x @ mixing).sum(-1)


estimators = [
    "score_function",
    "reinmax",
    "simple",
    get("sampled_straight_through", design="tree_pivotal"),
    get("sampled_straight_through", design="systematic"),
    "gumbel_straight_through",
    get("relaxed_subset", capped=True),
    "relaxed_subset",
    "imle",
    "adaptive_imle",
]
found = diagnose(loss, scores, k, estimators=estimators, repeats=4000, generator=generator)
print(found)

# %%
# Only the score function has no bias, but it has the largest variance. The others accept some bias for less
# variance.
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
found.plot(axes)
plt.show()
