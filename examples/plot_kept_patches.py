"""
Which patches are kept
======================

A small vision transformer learns scikit-learn's handwritten digits; each patch of 2×2 pixels is a token.
Then it keeps only the tokens that CLS attends to most, 9, 5 and 3 of 16 in three stages, and is fine-tuned
briefly. Dropped patches are shown in colour. The network decides where to look: an empty patch may
distinguish two digits as well as a stroke.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from khot.vision import VisionTransformer, count_flops, preset, reduce_tokens
from khot.vision.data import load

torch.manual_seed(0)
train, test = load("digits"), load("digits", train=False)
model = VisionTransformer(preset("digits", model="vit", width=32, depth=4, heads=2))


def learn(steps, rate):
    """AdamW with one cycle of the learning rate."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1)
    model.train()
    for _ in range(steps):
        x, target = train.batch(torch.randint(len(train), (32,)))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
        schedule.step()
    model.eval()


x, target = test.batch(torch.arange(len(test)))


def accuracy_and_cost():
    """In percent, and in million operations for an image."""
    with torch.no_grad():
        right = (model(x).argmax(-1) == target).double().mean()
    return f"{100 * right:.1f} % right, {count_flops(model, x[:1]) / 1e6:.1f} million operations"


learn(400, 3e-3)
print("all tokens:", accuracy_and_cost())
reduction = reduce_tokens(model, 0.6, locations=(0, 1, 2), mode="straight_through")
print("reduced:", accuracy_and_cost())
learn(80, 1e-3)
print("and fine-tuned:", accuracy_and_cost())

# %%
# The kept patches of each stage, drawn over the images.

shown = 8
with torch.no_grad():
    model(x[:shown])
fig, axes = plt.subplots(4, shown, figsize=(shown, 4.6), layout="constrained")
for kept, axis_row in zip([None, *reduction.kept], axes, strict=True):
    for i, axis in enumerate(axis_row):
        axis.imshow(x[i, 0], cmap="gray_r", vmin=0, vmax=1)
        if kept is not None:
            dropped = torch.ones(16).scatter(0, kept[i], float("nan")).view(4, 4)
            dropped = dropped.repeat_interleave(2, 0).repeat_interleave(2, 1)
            axis.imshow(dropped, cmap="Oranges", vmin=0, vmax=2.5)
        axis.set_xticks([])
        axis.set_yticks([])
    axis_row[0].set_ylabel("image" if kept is None else f"{kept.shape[1]} of 16")
plt.show()
