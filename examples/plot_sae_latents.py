"""
Autoencoders: loss recovered and dead latents
=============================================

Sparse autoencoders describe the hidden layer of a network that reads handwritten digits as sums of a few of
many directions. Three ways to select the active latents are trained in the same way, for several numbers of
active latents:

* *TopK*, with AuxK for latents that died;
* *BatchTopK*: the batch shares its active latents; evaluation uses a threshold;
* *sigmoid top-k*: soft weights, annealed to the hard selection, without AuxK.

The measure is the loss recovered: how good the network's own loss is when the layer is replaced by its
reconstruction. 1 means as good as without the autoencoder, 0 as bad as with the layer's mean.
"""

import tempfile

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

from khot.apps.sae import TrainSettings, collect_activations, train

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
held_out = torch.arange(len(labels)) % 3 == 2

# %%
# A network to explain, and the activations of its hidden layer, on disk. Images are shifted by up to one
# pixel, so that there are enough of them.
network = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)


def shifted(batch):
    """Each picture, moved by at most a pixel."""
    square = nn.functional.pad(batch.view(-1, 8, 8), (1, 1, 1, 1))
    down, right = torch.randint(0, 3, (2,)).tolist()
    return square[:, down : down + 8, right : right + 8].reshape(-1, 64)


for _ in range(600):
    chosen = torch.randint(0, len(labels), (128,))
    chosen = chosen[~held_out[chosen]]
    loss = nn.functional.cross_entropy(network(shifted(images[chosen])), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

seen = [shifted(images[~held_out]) for _ in range(12)]
store = collect_activations(network, "1", seen, tempfile.mkdtemp())
print(f"{len(store)} activations of length {store.d}")

# %%
# Train each of them with four numbers of active latents.
WAYS = {
    "TopK + AuxK": {"activation": "topk"},
    "BatchTopK + AuxK": {"activation": "batch_topk"},
    "sigmoid top-k, annealed": {"activation": "sigmoid_topk", "auxk": 0.0},
}


def loss_with(states):
    """The network's loss on held-out digits with these hidden states."""
    return nn.functional.cross_entropy(network[2](states), labels[held_out]).item()


with torch.no_grad():
    hidden = network[:2](images[held_out])
    clean, ablated = loss_with(hidden), loss_with(hidden.mean(0).expand_as(hidden))

recovered, dead = {}, {}
for name, way in WAYS.items():
    recovered[name] = []
    for k in (2, 4, 8, 12):
        settings = TrainSettings(
            num_latents=384, k=k, steps=400, batch_size=256, learning_rate=3e-3, dead_after=5000, **way
        )
        autoencoder, history = train(store, settings)
        with torch.no_grad():
            result = autoencoder(hidden)
            score = (ablated - loss_with(result.sae_out)) / (ablated - clean)
        recovered[name].append((result.l0.item(), score))
        if k == 4:
            dead[name] = (history["step"], history["dead"])
    print(name, [f"L0 {l0:.1f}: {score:.3f}" for l0, score in recovered[name]])

# %%
# Loss recovered against the number of active latents, and the share of latents that were not active on the
# last 5000 activations, during training.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name in WAYS:
    left.plot(*zip(*recovered[name], strict=True), "o-", label=name)
    right.plot(*dead[name], label=name)
left.set(title="loss recovered", xlabel="active latents (L0)", ylabel="1: as without the autoencoder")
right.set(title="dead latents, k = 4", xlabel="step", ylabel="share")
left.legend()
plt.show()
