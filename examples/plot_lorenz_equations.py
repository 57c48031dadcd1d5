"""
Equations from a trajectory
===========================

This example finds the equations of Lorenz's system from a noisy trajectory. Each equation may use some of
twenty polynomials. Which, and how many? The best 0, 1, 2, … terms of each equation form a path, and
validation on held-out time intervals says where to stop.
"""

import matplotlib.pyplot as plt
import numpy as np
import pysindy
from scipy.integrate import solve_ivp

from khot.apps.sindy import ExactK, SmoothedDerivative


def lorenz(_, x):
    """The slopes that are to be found."""
    return [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]


t = np.arange(0, 10, 0.002)
clean = solve_ivp(lorenz, (0, 10), [-8, 8, 27], t_eval=t, rtol=1e-10, atol=1e-12).y.T
size = np.sqrt(np.square(clean).mean())
noisy = clean + 0.05 * size * np.random.default_rng(0).normal(size=clean.shape)

# %%
# States and derivatives come from the same local polynomials, whose window adapts to the noise. With
# ``k="path"`` the number of terms is not given.

model = pysindy.SINDy(
    optimizer=ExactK("path", max_terms=8),
    feature_library=pysindy.PolynomialLibrary(3),
    differentiation_method=SmoothedDerivative(),
)
model.fit(noisy, t, feature_names=["x", "y", "z"])
model.print()
print("window:", model.differentiation_method.window_length_, "samples")

# %%
# The usual threshold on coefficients, with the same states and derivatives, keeps small terms, because a
# coefficient of 0.1 is small for one term and large for another.

threshold = pysindy.SINDy(
    optimizer=pysindy.STLSQ(threshold=0.1),
    feature_library=pysindy.PolynomialLibrary(3),
    differentiation_method=SmoothedDerivative(),
)
threshold.fit(noisy, t, feature_names=["x", "y", "z"])
threshold.print()

# %%
# The path: squared residuals on all samples (solid) and on held-out intervals (dashed, with standard
# errors). The circle marks the choice: the smallest number of terms within one standard error of the
# minimum.

names = model.get_feature_names()
figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), sharey=True, layout="constrained")
for axis, state, path in zip(axes, "xyz", model.optimizer.path_, strict=True):
    path.plot(axis)
    axis.set_title(f"{state}' = {', '.join(names[i] for i in path.supports[path.k])}")
    axis.label_outer()
plt.show()

# %%
# The table of one equation shows which terms the path has for each k.

print(model.optimizer.path_[1].table(names))

# %%
# The measured attractor, and that of the equations found, from the same start. In a chaotic system they must
# diverge, but their shape is the same.

found = model.simulate(clean[0], t)
figure = plt.figure(figsize=(11, 4.6), layout="constrained")
for place, (title, states) in enumerate((("measured", noisy), ("equations that were found", found)), 1):
    axis = figure.add_subplot(1, 2, place, projection="3d")
    axis.plot(*states.T, linewidth=0.5)
    axis.set(title=title, xlabel="x", ylabel="y", zlabel="z")
plt.show()
