"""
A tournament, and the weight of each entry
==========================================

Successive halving (:func:`khot.successive_halving_topk`) sorts the entries in every round and lets the best
meet the worst. Each pair becomes one entry, in which both have a share, until k entries are left. In the
picture, the width of a line is the share, a circle shows the score of an entry or of a blended pair, and the
colour shows the slot in which an entry ends. The weight of an entry is the product of the shares on its way
up; the weights of one colour sum to one.

With ten entries and three slots, five entries remain after the first round, and five cannot be halved to
three. The best of the five passes without an opponent.
"""

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import PathPatch
from matplotlib.path import Path

import khot


def tournament(scores, k):
    """Rounds of nodes by falling score: [(score, [(node of the round before, share), …]), …]."""
    rounds = [[(v, []) for v in scores.tolist()]]
    while len(rounds[-1]) > k:
        before = [v for v, _ in rounds[-1]]
        m = len(before)
        t = max(k, (m + 1) // 2)
        alone = 2 * t - m
        nodes = [(before[i], [(i, 1.0)]) for i in range(alone)]
        for i, j in zip(range(alone, t), reversed(range(t, m)), strict=True):
            w = torch.sigmoid(torch.tensor(before[i] - before[j])).item()
            nodes.append((w * before[i] + (1 - w) * before[j], [(i, w), (j, 1 - w)]))
        rounds.append(sorted(nodes, key=lambda node: -node[0]))
    return rounds


def fates(rounds):
    """For every node of every round: the slot in which it ends, and with what weight."""
    found = [[(slot, 1.0) for slot in range(len(rounds[-1]))]]
    for nodes in reversed(rounds[1:]):
        below = {}
        for (_, pair), (slot, weight) in zip(nodes, found[0], strict=True):
            below.update({i: (slot, share * weight) for i, share in pair})
        found.insert(0, [below[i] for i in range(len(below))])
    return found


def draw(tree, bars, scores, k):
    """The tournament of scores that are sorted already, and the weights under it."""
    n, colours = len(scores), ["#2a6f97", "#edae49", "#d1495b"]
    rounds = tournament(scores, k)
    ends = fates(rounds)
    weights = khot.successive_halving_topk(scores, k)
    torch.testing.assert_close(weights, torch.tensor([weight for _, weight in ends[0]]))
    places = [[(i + 0.5) * n / len(nodes) - 0.5 for i in range(len(nodes))] for nodes in rounds]
    for level, nodes in enumerate(rounds):
        for i, (score, pair) in enumerate(nodes):
            x, colour = places[level][i], colours[ends[level][i][0]]
            for child, share in pair:
                start = places[level - 1][child]
                curve = [(start, level - 1), (start, level - 0.45), (x, level - 0.55), (x, level)]
                path = Path(curve, [Path.MOVETO, *[Path.CURVE4] * 3])
                style = {"linewidth": 0.8 + 14 * share, "alpha": 0.35 + 0.55 * share}
                tree.add_patch(PathPatch(path, fill=False, edgecolor=colour, zorder=1 + share, **style))
            circle = {"markersize": 25, "markeredgewidth": 2.2, "markeredgecolor": colour, "color": "white"}
            tree.plot(x, level, "o", zorder=4, **circle)
            label = f"{score:.1f}".replace("-", "−")
            tree.text(x, level, label, ha="center", va="center_baseline", fontsize=8.5, zorder=5)
            if len(pair) == 1:
                start = places[level - 1][pair[0][0]]
                place = {"xytext": (18, 0), "textcoords": "offset points"}
                middle = ((start + x) / 2, level - 0.5)
                tree.annotate("passes alone", middle, color=colour, fontsize=9, va="center", **place)

    bars.bar(range(n), weights, width=0.72, color=[colours[slot] for slot, _ in ends[0]])
    for i, weight in enumerate(weights.tolist()):
        bars.text(i, weight + 0.04, f"{weight:.2f}", ha="center", fontsize=8.5)
    tree.set_title(f"{n} entries, {k} slots", fontsize=11)
    tree.set_yticks(range(len(rounds)), ["scores", *(f"round {level}" for level in range(1, len(rounds)))])
    tree.set_ylim(-0.25, len(rounds) - 0.75)
    tree.set_xlim(-0.7, n - 0.3)
    bars.set_ylim(0, 1.15)
    bars.set_yticks([0.5], ["weights"])
    for ax in (tree, bars):
        ax.tick_params(length=0, labelbottom=False)
        ax.spines[:].set_visible(False)
    bars.spines["bottom"].set_visible(True)


eight = torch.tensor([2.8, 2.3, 1.7, 1.3, 0.8, 0.3, -0.2, -0.9])
ten = torch.tensor([2.9, 2.3, 1.8, 1.5, 1.1, 0.6, 0.3, -0.1, -0.5, -1.2])
fig, axes = plt.subplots(
    2, 2, figsize=(12, 5.2), height_ratios=[3.4, 1], width_ratios=[8, 10], sharex="col", layout="constrained"
)
draw(axes[0, 0], axes[1, 0], eight, 2)
draw(axes[0, 1], axes[1, 1], ten, 3)
plt.show()
