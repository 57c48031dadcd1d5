"""
What intervals say about the k-th best
======================================

Often only intervals are known for the scores: they were measured with an error, or propagated through a
network from a box of inputs. Then some entries are certainly among the k largest, some certainly not, and
some are undecided. :func:`khot.rank_bounds` returns the ranks each entry can have,
:func:`khot.kth_best_bounds` the interval of the k-th best value. Both are sound: no scores in the intervals
can give a result outside, as the samples show. (In this example the values are the scores themselves; the
bounds do not use this, because they treat vectors and scores as two separate boxes.)
"""

import matplotlib.pyplot as plt
import torch

import khot

generator = torch.Generator().manual_seed(4)
n, k = 12, 5
centre = torch.randn(n, generator=generator).sort(descending=True).values
radius = 0.08 + 0.4 * torch.rand(n, generator=generator)
low, high = centre - radius, centre + radius

ranks = khot.rank_bounds(low, high, k)
bounds = khot.kth_best_bounds(low[:, None], high[:, None], low, high, k)
least, most = (bound.item() for bound in bounds)
samples = low + (high - low) * torch.rand(50_000, n, generator=generator)
kth = samples.topk(k).values[:, -1]
assert least <= kth.min() <= kth.max() <= most

fates = {"kept": ranks.kept, "undecided": ranks.undecided, "dropped": ranks.dropped}
colours = {"kept": "#2a6f97", "undecided": "#edae49", "dropped": "#b8bfc6"}
red = "#d1495b"

fig = plt.figure(figsize=(10.5, 5), layout="constrained")
grid = fig.add_gridspec(2, 2, height_ratios=[1, 3.4])
density = fig.add_subplot(grid[0, 0])
values = fig.add_subplot(grid[1, 0], sharex=density)
places = fig.add_subplot(grid[1, 1], sharey=values)
bar = {"linewidth": 7, "solid_capstyle": "butt"}
dots = {"linewidth": 7, "solid_capstyle": "round", "marker": "o"}  # visible if there is one rank only
for fate, entries in fates.items():
    for i in entries.nonzero().flatten():
        values.plot([low[i], high[i]], [i, i], color=colours[fate], **bar)
        places.plot([ranks.rank_min[i], ranks.rank_max[i]], [i, i], color=colours[fate], **dots)
for i in range(n):
    values.plot(samples[:80, i], [i] * 80, "|", color="black", alpha=0.3, markersize=4)

density.hist(kth, bins=80, density=True, color=red, alpha=0.8)
density.set_title(f"the {k}th best: its bounds, and 50 000 samples", fontsize=10)
density.set_yticks([])
density.tick_params(labelbottom=False)
for ax in (density, values):
    ax.axvspan(least, most, color=red, alpha=0.1, linewidth=0, zorder=0)
    for end in (least, most):
        ax.axvline(end, color=red, linewidth=1)
places.axvline(k + 0.5, color=red, linewidth=1, linestyle="--")
places.text(k + 0.7, 0, "ranks 1 to 5 are selected", color=red, fontsize=8, va="center")
places.set_xticks(range(1, n + 1))
values.invert_yaxis()
values.set_yticks(range(n), range(1, n + 1))
values.set_ylabel("entry")
values.set_xlabel("score")
places.set_xlabel("rank (1 is the largest)")
places.tick_params(labelleft=False)
handles = [plt.Line2D([], [], color=colours[fate], **bar) for fate in fates]
labels = ["kept: among the five for all scores", "undecided", "dropped: among them for none"]
corner = fig.add_subplot(grid[0, 1])
corner.axis("off")
corner.legend(handles, labels, loc="center", frameon=False, fontsize=9, labelspacing=0.8)
for ax in (density, values, places):
    ax.spines[["top", "right"]].set_visible(False)
density.spines["left"].set_visible(False)
plt.show()
