"""
Gumbel top-k does not have the inclusion probabilities you give
===============================================================

People often assume that the k largest of :math:`\\log \\pi_i` plus Gumbel noise are a draw with inclusion
probabilities π. In fact they are k draws without replacement, each ∝ π. Once a large unit has been drawn,
the small ones have better chances, so large inclusion probabilities come out too small and small ones too
large. The picture compares P(unit i is drawn), exact by quadrature, with the requested π, and shows the
largest error for each k. It is 0 only for k = 1. Pareto keys cost the same, one top-k, and are much closer;
Sampford sampling is exact.
"""

import matplotlib.pyplot as plt
import torch

import khot
from khot.designs import AdjustedPareto, Pareto, PlackettLuce, Sampford

n, k = 9, 4
scores = torch.linspace(3.0, -3.0, n, dtype=torch.float64)
designs = {
    "Gumbel top-k": lambda k, pi: PlackettLuce(k, logits=pi.log()),
    "Pareto": lambda k, pi: Pareto(k, probs=pi),
    "adjusted Pareto": lambda k, pi: AdjustedPareto(k, probs=pi),
    "Sampford": lambda k, pi: Sampford(k, probs=pi),
}

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
pi = khot.sigmoid_topk(scores, k)
gumbel = PlackettLuce(k, logits=pi.log())
true = gumbel.mean
drawn = gumbel.sample((20_000,), generator=torch.Generator().manual_seed(0)).mean(0)
units = torch.arange(n)
left.bar(units - 0.2, pi, 0.4, color="0.75", label="asked for: π")
left.bar(units + 0.2, true, 0.4, color="C3", label="Gumbel top-k: exact")
left.plot(units + 0.2, drawn, "k_", markersize=9, label="the same, from 20000 draws")
left.set_title(f"{n} units, k = {k}: largest error {(true - pi).abs().max():.2f}", fontsize=10)
left.set_xlabel("unit")
left.set_ylabel("inclusion probability")
left.set_xticks(units)
left.legend(fontsize=8)

sizes = range(1, n)
wanted = {size: khot.sigmoid_topk(scores, size) for size in sizes}
for (name, design), style in zip(designs.items(), ("C3o-", "C1s-", "C0^-", "C2x-"), strict=True):
    errors = [(design(size, wanted[size]).mean - wanted[size]).abs().max() for size in sizes]
    right.plot(sizes, errors, style, label=name, markersize=4)
right.set_title("largest error of an inclusion probability", fontsize=10)
right.set_xlabel("k")
right.set_xticks(list(sizes))
right.legend(fontsize=8)
plt.show()
