"""
Which patches a network selects
===============================

A small network after the topknets project (:class:`khot.vision.TopKDynamicModel`) learns scikit-learn's
digits. In each of its blocks every head gives each of the sixteen patches a score and softly chooses four,
from which all patches read; which patches these are depends on the image. In the picture, the brighter a
patch is, the more of it the heads of the last block take.
"""

import tempfile

import matplotlib.pyplot as plt
import torch

from khot.vision import load_network
from khot.vision.data import load
from khot.vision.training import run_preset, train

torch.set_num_threads(1)
config = run_preset("digits").changed(
    {"model": "topk_dynamic", "width": 32, "depth": 2, "k": 4},
    {"epochs": 8, "batch_size": 32, "learning_rate": 6e-3, "warmup_epochs": 0.5, "augment": False},
)
with tempfile.TemporaryDirectory() as folder:
    results = train(config, folder)
    model = load_network(folder)
print(f"{results['parameters']} parameters, top-1 {100 * results['top1']:.1f} %")

# %%
# The rows of the last block, summed over the ranks and averaged over the heads, are the share of each patch.

test = load("digits", train=False)
examples = torch.tensor([int((test.labels == digit).nonzero()[0]) for digit in range(10)])
images, labels = test.batch(examples)
with torch.no_grad():
    shares = model.selections(images)[-1].sum(-2).mean(1).view(-1, *config.network.grid)
    guesses = model(images).argmax(-1)

figure, axes = plt.subplots(2, 10, figsize=(11, 2.8), layout="constrained")
for column in range(10):
    axes[0, column].imshow(images[column, 0], cmap="gray_r")
    axes[0, column].set_title(f"{labels[column]}, read {guesses[column]}", fontsize="small")
    axes[1, column].imshow(shares[column], vmin=0, vmax=1, cmap="viridis")
for axis in axes.flat:
    axis.set_axis_off()
plt.show()
