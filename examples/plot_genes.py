"""
Ten genes of two thousand
=========================

This example has far more features than rows: 2000 'genes' of 80 patients with four kinds of tumour. The data
are synthetic. Twelve genes matter, each for one kind, and each of these has four correlated copies. Many
sets of ten genes are equally good, so the sets from different halves of the data differ. What counts is how
well they separate the kinds of tumour, and how many different groups they cover. ``khot reproduce features``
uses real data: NCI60, Khan and Golub.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.model_selection import StratifiedShuffleSplit

from khot.apps.features import TopKSelector

rng = np.random.default_rng(0)
PATIENTS, GENES, GROUPS, COPIES = 80, 2000, 12, 5
kind = np.arange(PATIENTS) % 4
drivers = rng.normal(size=(PATIENTS, GROUPS)) + 1.6 * (np.arange(GROUPS) % 4 == kind[:, None])
genes = rng.normal(size=(PATIENTS, GENES))
for copy in range(COPIES):  # genes 0 to 59: group = number modulo 12
    genes[:, copy * GROUPS : (copy + 1) * GROUPS] = drivers + 0.4 * rng.normal(size=drivers.shape)

# %%
# For each k there are five splits: select on the training patients, then evaluate with a forest on the
# others.

COUNTS = (2, 5, 10, 20)
SELECTORS = {
    "TopKSelector": lambda k: TopKSelector(k, max_iter=300, random_state=0),
    "SelectKBest": lambda k: SelectKBest(f_classif, k=k),
}
accuracy = {name: np.zeros((len(COUNTS), 5)) for name in SELECTORS}
groups = {name: np.zeros((len(COUNTS), 5)) for name in SELECTORS}
splits = StratifiedShuffleSplit(5, test_size=0.3, random_state=0)
for place, (train, test) in enumerate(splits.split(genes, kind)):
    for name, make in SELECTORS.items():
        for row, k in enumerate(COUNTS):
            found = make(k).fit(genes[train], kind[train]).get_support(indices=True)
            forest = ExtraTreesClassifier(50, random_state=0).fit(genes[train][:, found], kind[train])
            accuracy[name][row, place] = forest.score(genes[test][:, found], kind[test])
            groups[name][row, place] = len({g % GROUPS for g in found if g < GROUPS * COPIES})

print("k    accuracy              different groups among the k")
for row, k in enumerate(COUNTS):
    cells = [f"{name} {accuracy[name][row].mean():.2f} {groups[name][row].mean():4.1f}" for name in SELECTORS]
    print(f"{k:2}   " + "   ".join(cells))

# %%
# Correlated genes look equally good one by one. Gates that learn together spread over the groups.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for axis, numbers, label in zip(axes, (accuracy, groups), ("accuracy", "groups among the k"), strict=True):
    for name, values in numbers.items():
        error = values.std(1, ddof=1) / 5**0.5
        axis.errorbar(COUNTS, values.mean(1), error, marker="o", label=name)
    axis.set(xlabel="k", ylabel=label)
axes[1].plot(COUNTS, np.minimum(COUNTS, GROUPS), color="0.5", linestyle=":", label="as many as there can be")
axes[1].legend()
plt.show()
