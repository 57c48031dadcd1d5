"""
A mask while it trains
======================

A small network reads scikit-learn's digits with fewer and fewer weights, until 5 % are left. The budget is
exact at every step. Every ten steps the weights to use are chosen again, among all layers together. The
weights kept in the first layer show where the digits are.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils import prune

from khot.apps.sparse import cubic, make_permanent, sparsify

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
held_out = torch.arange(len(labels)) % 3 == 2
STEPS = 400

# %%
# All networks train in the same way; an argument says what happens after each step.


def train(model, after=lambda step: None):
    """The accuracy on held-out digits."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rows = (~held_out).nonzero().flatten()
    for step in range(STEPS):
        batch = rows[torch.randint(len(rows), (64,))]
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after(step + 1)
    with torch.no_grad():
        return (model(images[held_out]).argmax(-1) == labels[held_out]).float().mean().item()


def network():
    """The same network, from the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))


# %%
# From dense to sparse. ``cubic`` is the density as a function of the step; the masks at four steps are
# stored.

model = network()
sparse = sparsify(model, cubic(1.0, 0.05, steps=250, warmup=50), scope="global", every=10)
masks = {}


def watch(step):
    """Choose masks if it is time to, and remember some."""
    sparse.step()
    if step in (70, 120, 200, STEPS):
        masks[step] = model[0].parametrizations.weight[0].mask.clone()


accuracy = train(model, watch)
print(sparse.report().table())

figure, axes = plt.subplots(1, 5, figsize=(13, 2.9), layout="constrained", width_ratios=[1, 1, 1, 1, 1.7])
for axis, (step, mask) in zip(axes, masks.items(), strict=False):
    axis.imshow(mask.float().sum(0).view(8, 8), cmap="magma")
    axis.set(title=f"step {step}: {mask.float().mean():.1%}", xticks=[], yticks=[])
sparse.report().plot(axes[-1])
figure.suptitle("How many units of the first layer use each pixel; density and churn of the layers")
plt.show()

# %%
# Accuracy against density, compared with one-shot magnitude pruning after three quarters of the training.


def pruned(density):
    """The accuracy with torch.nn.utils.prune."""
    model = network()
    layers = [(model[i], "weight") for i in (0, 2, 4)]

    def after(step):
        if step == 300:
            prune.global_unstructured(layers, prune.L1Unstructured, amount=1 - density)

    return train(model, after)


def selected(density):
    """The accuracy with masks that are chosen all along."""
    model = network()
    sparse = sparsify(model, cubic(1.0, density, steps=250, warmup=50), scope="global", every=10)
    accuracy = train(model, lambda step: sparse.step())
    make_permanent(model)
    return accuracy


densities = [0.2, 0.1, 0.05, 0.02]
figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
axis.plot(densities, [selected(density) for density in densities], "o-", label="chosen throughout training")
axis.plot(densities, [pruned(density) for density in densities], "o-", label="pruned in one shot")
axis.axhline(train(network()), color="0.5", linestyle=":", label="dense")
axis.set(xscale="log", xlabel="density", ylabel="accuracy on held-out digits")
axis.legend()
plt.show()
