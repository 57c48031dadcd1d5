"""
Learned neighbourhoods
======================

A linear map shows digits of 64 pixels on a plane. The two principal directions keep variance and mix the
digits. The map learned by :class:`khot.apps.neighbors.NeighborLoss` keeps neighbourhoods: the five nearest
neighbours of a digit should show the same digit. The last picture shows the neighbours of some test digits
before and after learning.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from khot.apps.neighbors import SoftKNeighborsClassifier

images, labels = load_digits(return_X_y=True)
train, test, y, answers = train_test_split(images, labels, random_state=0, stratify=labels)

# %%
# The same classifier before and after learning, in two dimensions.

models = {
    "principal directions": SoftKNeighborsClassifier(5, n_components=2, max_iter=0),
    "learned": SoftKNeighborsClassifier(5, n_components=2, max_iter=300, random_state=0),
}
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for axis, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(train, y)
    points = model.embed(test)
    drawn = axis.scatter(*points.T, c=answers, cmap="tab10", s=12)
    score = model.score(test, answers)
    print(f"{name:22} accuracy of 5 neighbours on the plane: {score:.3f}")
    axis.set_title(f"{name}: {score:.1%}")
    axis.set_axis_off()
figure.colorbar(drawn, ax=axes, ticks=range(10), shrink=0.8)
plt.show()

# %%
# Some neighbourhoods. On the left the test digit, then its five nearest training digits, before and after
# learning.

wrong_before = models["principal directions"].predict(test) != answers
figure, axes = plt.subplots(4, 11, figsize=(10, 3.9), layout="constrained")
for row, i in zip(axes, wrong_before.nonzero()[0][:4], strict=True):
    near = [model.kneighbors(test[i : i + 1], return_distance=False)[0] for model in models.values()]
    shown = [test[i], *train[near[0]], *train[near[1]]]
    names = [answers[i], *y[near[0]], *y[near[1]]]
    for place, (axis, picture, name) in enumerate(zip(row, shown, names, strict=True)):
        axis.imshow(picture.reshape(8, 8), cmap="gray_r")
        axis.set_title(str(name), fontsize="small", color="C2" if name == answers[i] else "C3", pad=1)
        axis.set_axis_off()
        if place == 0:
            axis.set_title(f"is {name}", fontsize="small", pad=1)
figure.suptitle("test digit | five nearest, principal directions | five nearest, learned", fontsize="medium")
plt.show()
