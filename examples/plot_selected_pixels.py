"""
Which pixels tell digits apart
==============================

A classifier may see twelve of sixty-four pixels. Methods that score each pixel by itself select redundant
neighbours; gates that learn together with a network select pixels with different information. The second
picture shows how accuracy grows with k, compared with :class:`sklearn.feature_selection.SelectKBest` and
random pixels.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import train_test_split

from khot.apps.features import TopKSelector

images, labels = load_digits(return_X_y=True)
train, test, y, answers = train_test_split(images, labels, random_state=0, stratify=labels)

# %%
# Exactly twelve pixels, in one call. Constant ones, such as those in the corners, are never chosen.


def f_values(x, y):
    """The F statistic, 0 for pixels that are constant."""
    groups = [x[y == label] for label in range(10)]
    between = sum(len(g) * (g.mean(0) - x.mean(0)) ** 2 for g in groups)
    within = sum(((g - g.mean(0)) ** 2).sum(0) for g in groups)
    return between / np.where(within > 0, within, np.inf)


K = 12
selectors = {
    "TopKSelector": lambda k: TopKSelector(k, max_iter=400, random_state=0),
    "SelectKBest": lambda k: SelectKBest(f_values, k=k),
    "random pixels": None,
}


def chosen(name, k):
    """The pixels that a selector takes."""
    if selectors[name] is None:
        return np.random.default_rng(0).permutation(64)[:k]
    return selectors[name](k).fit(train, y).get_support(indices=True)


def accuracy(pixels):
    """Of a forest that sees these pixels alone."""
    forest = ExtraTreesClassifier(50, random_state=0).fit(train[:, pixels], y)
    return forest.score(test[:, pixels], answers)


figure, axes = plt.subplots(2, 6, figsize=(10, 3.8), layout="constrained")
for row, name in zip(axes, ("TopKSelector", "SelectKBest"), strict=True):
    pixels = chosen(name, K)
    print(f"{name:14} {K} of 64 pixels: accuracy {accuracy(pixels):.3f}")
    for axis, digit in zip(row, (0, 2, 3, 5, 8, 9), strict=True):
        axis.imshow(train[y == digit][0].reshape(8, 8), cmap="gray_r")
        axis.scatter(pixels % 8, pixels // 8, marker="s", s=110, facecolors="none", edgecolors="C3")
        axis.set_axis_off()
    row[0].set_title(name, loc="left", fontsize="medium")
plt.show()

# %%
# Accuracy against k.

counts = (2, 4, 8, 12, 20, 32)
figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name in selectors:
    axis.plot(counts, [accuracy(chosen(name, k)) for k in counts], marker="o", label=name)
axis.axhline(accuracy(np.arange(64)), color="0.5", linestyle=":", label="all 64 pixels")
axis.set(xlabel="k", ylabel="accuracy of ExtraTrees(50)")
axis.legend()
plt.show()
