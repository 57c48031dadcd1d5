"""
Experts: collapse and cure
==========================

Eight experts share the patches of handwritten digits; a router sends each patch to one of them. How the
router is trained decides how many experts are used:

* with one expert, a renormalised weight is always 1, so the router has no gradient and never changes;
* the plain softmax weight has a gradient, but good experts get more patches and become better still: a few
  experts take all patches;
* a balance loss, or a bias that adapts to the loads, keeps all experts in use.
"""

import warnings

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

from khot.apps.moe import (
    Experts,
    MoE,
    RoutingStatistics,
    TopKRouter,
    balance_experts,
    load_balance_loss,
)

EXPERTS, STEPS = 8, 300
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
held_out = torch.arange(len(labels)) % 3 == 2
patches = nn.functional.unfold(images, 2, stride=2).mT  # (1797, 16 patches, 4 pixels)

# %%
# The network has one layer of experts between an embedding and the mean over patches. ``return_routing``
# returns the router's choices, for the balance loss and for the statistics.


class Network(nn.Module):
    """Patches, experts, mean, digit."""

    def __init__(self, router: TopKRouter) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, 32), nn.Linear(32, 10)
        self.places = nn.Parameter(0.1 * torch.randn(16, 32))
        self.norm = nn.LayerNorm(32)
        self.mixture = MoE(router, Experts(EXPERTS, hidden=32, width=32))

    def forward(self, x):
        """Logits of the digits, and the routing."""
        x = self.into(x) + self.places
        y, routing = self.mixture(self.norm(x), return_routing=True)
        return self.out((x + y).mean(1)), routing


def train(*, balance_loss=0.0, bias_rate=0.0, **options):
    """The accuracy on held-out digits, the statistics of the router, and the mean norm of its gradient."""
    torch.manual_seed(0)
    model = Network(TopKRouter(32, EXPERTS, k=1, correction_bias=bias_rate > 0, **options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if bias_rate:
        balance_experts(model, optimizer, bias_rate)
    statistics, norm = RoutingStatistics(EXPERTS), 0.0
    train_rows = (~held_out).nonzero().flatten()
    for _ in range(STEPS):
        rows = train_rows[torch.randint(len(train_rows), (64,))]
        logits, routing = model(patches[rows])
        loss = nn.functional.cross_entropy(logits, labels[rows])
        loss = loss + balance_loss * load_balance_loss(routing.logits, routing.indices)
        optimizer.zero_grad()
        loss.backward()
        norm += model.mixture.router.weight.grad.norm().item() / STEPS
        optimizer.step()
        statistics.update(routing.indices)
    model.eval()
    right = model(patches[held_out])[0].argmax(-1) == labels[held_out]
    return right.float().mean().item(), statistics, norm


# %%
# Four routers with the same network and the same data. khot warns about the first one, for good reason.

warnings.simplefilter("ignore")
cases = {
    "renormalised": {"renormalise": True},
    "not renormalised": {"scaling_factor": "unit"},
    "with balance loss": {"scaling_factor": "unit", "balance_loss": 0.05},
    "with a correction bias": {"scaling_factor": "unit", "bias_rate": 0.01},
}
results = {name: train(**options) for name, options in cases.items()}

print("router                   accuracy  gradient  entropy  idle experts")
for name, (accuracy, statistics, norm) in results.items():
    last = statistics.steps[-1]
    print(f"{name:24} {accuracy:8.3f}  {norm:8.1e}  {last.entropy:7.2f}  {last.idle}")

# %%
# The share of each expert during training. Without a gradient the router does not change; only the embedding
# does. With a gradient but no balance some experts starve; with balance they stay in use. On a task this
# small one expert can do nearly all the work, so accuracies differ little.

figure, axes = plt.subplots(1, 4, figsize=(13, 3), sharey=True, layout="constrained")
for axis, (name, (accuracy, statistics, _)) in zip(axes, results.items(), strict=True):
    statistics.plot(axis)
    axis.set_title(f"{name}: {accuracy:.1%}", fontsize="medium")
    axis.label_outer()
plt.show()
