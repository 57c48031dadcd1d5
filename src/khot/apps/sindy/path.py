r"""The path of an equation: its best k terms for every k, and the k that a criterion chooses.

With :math:`E_k` the squared residual of the best k terms over n samples,

.. math::
    \mathrm{BIC}_k = n \log E_k + k \log n, \qquad \mathrm{AIC}_k = n \log E_k + 2 k,

and the smallest value is chosen. Both assume independent residuals; for a smoothed trajectory they are not
independent, and both keep too many terms. ``"validation"`` leaves out one block of rows after another, finds
the best terms on the others, and measures the error on the block. It chooses the fewest terms whose mean
error is within one standard error of the smallest (Breiman et al. 1984), or at most ``tolerance``.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from khot.apps.sindy._equations import least_squares, reduce_equations
from khot.apps.sindy._search import Found, Search

__all__ = ["Criterion", "TermPath", "term_paths"]

Array = NDArray[np.float64]
Criterion = Literal["validation", "bic", "aic"]


@dataclass(frozen=True)
class TermPath:
    """The best supports of one equation, by their number of terms.

    Args:
        supports: the chosen terms of the library, for k = 0, 1, ….
        errors: squared residuals on all samples, relative to the target's sum of squares.
        criterion: ``"validation"``, ``"bic"`` or ``"aic"``.
        values: the criterion for each k; for validation the mean relative error over folds.
        deviations: the standard errors of these means; zeros for the other criteria.
        k: the number of terms that the criterion chooses.

    Example:
        >>> path = TermPath(((), (2,), (0, 2)), (1.0, 0.02, 0.019), "bic", (9.0, 1.0, 2.0), (0.0,) * 3, 1)
        >>> path.supports[path.k]
        (2,)
        >>> print(path.table())
        | k | error | bic | terms |
        | ---: | ---: | ---: | --- |
        | 0 | 1 | 9 |  |
        | **1** | 0.02 | 1 | 2 |
        | 2 | 0.019 | 2 | 0, 2 |
    """

    supports: tuple[tuple[int, ...], ...]
    errors: tuple[float, ...]
    criterion: Criterion
    values: tuple[float, ...]
    deviations: tuple[float, ...]
    k: int

    def table(self, names: Sequence[str] | None = None) -> str:
        """A Markdown table; ``names`` are the names of the library's terms."""
        lines = [f"| k | error | {self.criterion} | terms |", "| ---: | ---: | ---: | --- |"]
        for k, (support, error, value) in enumerate(
            zip(self.supports, self.errors, self.values, strict=True)
        ):
            terms = ", ".join(str(term) if names is None else names[term] for term in support)
            shown = f"**{k}**" if k == self.k else str(k)
            lines.append(f"| {shown} | {error:.4g} | {value:.4g} | {terms} |")
        return "\n".join(lines)

    def plot(self, axes: Any = None, label: str | None = None) -> Any:
        """Plot the error (and the validation error) over k; returns the axes. Needs matplotlib."""
        if axes is None:
            try:
                import matplotlib.pyplot as plt
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError("TermPath.plot needs matplotlib: pip install matplotlib") from error
            axes = plt.subplots()[1]
        count = range(len(self.errors))
        floor = np.finfo(np.float64).tiny
        (line,) = axes.plot(count, np.maximum(self.errors, floor), "o-", markersize=3, label=label)
        shown = self.errors
        if self.criterion == "validation":
            shown = self.values
            axes.errorbar(
                count,
                np.maximum(self.values, floor),
                self.deviations,
                fmt="s--",
                markersize=3,
                color=line.get_color(),
                alpha=0.6,
            )
        axes.plot(
            [self.k],
            [max(shown[self.k], floor)],
            "o",
            markersize=11,
            fillstyle="none",
            color=line.get_color(),
        )
        axes.set(xlabel="terms", ylabel="squared residual, share of the target's", yscale="log")
        return axes


def term_paths(
    library: Array,
    targets: Array,
    largest: int,
    search: Search,
    *,
    criterion: Criterion = "validation",
    folds: int = 5,
    tolerance: float = 1e-8,
    alpha: float = 0.0,
    known: Sequence[Sequence[Sequence[int]]] | None = None,
) -> tuple[TermPath, ...]:
    """A path for each target; ``known`` has further starts for each target."""
    equations = reduce_equations(library, targets, alpha)
    count = targets.shape[1]
    starts = known if known is not None else [()] * count
    found = [search.path(equations, e, largest, starts[e]) for e in range(count)]
    held_out = _held_out(library, targets, found, search, folds, alpha) if criterion == "validation" else None
    paths: list[TermPath] = []
    for equation, path in enumerate(found):
        errors = np.array([error for _, error in path])
        if held_out is None:
            values = _information(errors, equations.samples, criterion, tolerance)
            deviations, k = np.zeros_like(values), int(values.argmin())
        else:
            values = held_out[equation].mean(axis=0)
            deviations = held_out[equation].std(axis=0, ddof=1) / np.sqrt(folds)
            least = int(values.argmin())
            k = int(np.argmax(values <= max(values[least] + deviations[least], tolerance)))
        supports = tuple(support for support, _ in path)
        paths.append(
            TermPath(
                supports,
                tuple(errors.tolist()),
                criterion,
                tuple(values.tolist()),
                tuple(deviations.tolist()),
                k,
            )
        )
    return tuple(paths)


def _information(errors: Array, samples: int, criterion: Criterion, tolerance: float) -> Array:
    price = np.log(samples) if criterion == "bic" else 2.0
    floor = max(tolerance, float(np.finfo(np.float64).tiny))
    return np.asarray(
        samples * np.log(np.maximum(errors, floor)) + price * np.arange(len(errors)), np.float64
    )


def _held_out(
    library: Array, targets: Array, found: list[list[Found]], search: Search, folds: int, alpha: float
) -> Array:
    """Errors (targets, folds, k) on rows left out, as shares of the mean squares of all rows."""
    rows = np.arange(len(library))
    errors = np.zeros((len(found), folds, len(found[0])))
    scale = np.square(targets).mean(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    for fold, out in enumerate(np.array_split(rows, folds)):
        rest = np.delete(rows, out)
        equations = reduce_equations(library[rest], targets[rest], alpha)
        for equation, path in enumerate(found):
            known = [support for support, _ in path]
            near = search.near(equations, equation, known)
            for k, support in enumerate(near):
                terms = list(support)
                coefficients = least_squares(library[rest][:, terms], targets[rest, equation], alpha)
                residual = targets[out, equation] - library[out][:, terms] @ coefficients
                errors[equation, fold, k] = np.square(residual).mean() / scale[equation]
    return errors
