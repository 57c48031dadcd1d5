"""A report on a sparse model: how dense each layer is, and how much its mask still changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["SparseLayer", "SparseReport", "SparseStep"]


@dataclass(frozen=True)
class SparseLayer:
    """The current state of one layer.

    Args:
        name: its name in the model.
        shape: the shape of its weight.
        weights: the number of weights.
        kept: how many weights are not masked.
        churn: the share of kept weights that were not kept before the last selection; None before the first
            selection.

    Example:
        >>> SparseLayer("fc", shape=(4, 8), weights=32, kept=8, churn=None).density
        0.25
    """

    name: str
    shape: tuple[int, ...]
    weights: int
    kept: int
    churn: float | None

    @property
    def density(self) -> float:
        """The share of weights that is kept."""
        return self.kept / max(self.weights, 1)


@dataclass(frozen=True)
class SparseStep:
    """One selection of masks, an entry in the history of a report.

    Args:
        step: the step of the optimiser.
        kept: the number of kept weights, by the name of the layer.
        churn: the share of kept weights that are new, by the name of the layer; None in the first selection.

    Example:
        >>> from khot.apps.sparse import sparsify
        >>> from torch import nn
        >>> sparse = sparsify(nn.Sequential(nn.Linear(8, 4)), 0.25)
        >>> done = sparse.step()
        >>> sparse.history[-1].step, sparse.history[-1].kept
        (1, {'0': 8})
    """

    step: int
    kept: dict[str, int]
    churn: dict[str, float | None]


@dataclass(frozen=True)
class SparseReport:
    """The result of :meth:`Sparsification.report`.

    Args:
        layers: the current state of each layer.
        history: the selections, in order.

    Example:
        >>> from khot.apps.sparse import sparsify
        >>> from torch import nn
        >>> print(sparsify(nn.Linear(8, 4), 0.25).report().table())
        | layer | shape | weights | kept | density | churn |
        | :--- | :--- | ---: | ---: | ---: | ---: |
        | (model) | 4×8 | 32 | 8 | 0.2500 | – |
        | all |  | 32 | 8 | 0.2500 |  |
    """

    layers: tuple[SparseLayer, ...]
    history: tuple[SparseStep, ...]

    @property
    def density(self) -> float:
        """The share of kept weights over all these layers."""
        return sum(layer.kept for layer in self.layers) / max(sum(layer.weights for layer in self.layers), 1)

    def table(self) -> str:
        """The layers as a Markdown table."""
        rows = [
            (
                layer.name or "(model)",
                "×".join(map(str, layer.shape)),
                f"{layer.weights}",
                f"{layer.kept}",
                f"{layer.density:.4f}",
                "–" if layer.churn is None else f"{layer.churn:.4f}",
            )
            for layer in self.layers
        ]
        weights, kept = (
            sum(layer.weights for layer in self.layers),
            sum(layer.kept for layer in self.layers),
        )
        lines = [
            ("layer", "shape", "weights", "kept", "density", "churn"),
            (":---", ":---", "---:", "---:", "---:", "---:"),
            *rows,
            ("all", "", f"{weights}", f"{kept}", f"{self.density:.4f}", ""),
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def plot(self, axes: Any = None) -> Any:
        """Plot density (lines) and churn (dots) of each layer over the steps; returns the axes.

        Needs matplotlib.
        """
        if axes is None:
            try:
                import matplotlib.pyplot as plt
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(
                    "SparseReport.plot needs matplotlib: pip install matplotlib"
                ) from error
            axes = plt.subplots()[1]
        steps = [step.step for step in self.history]
        for layer in self.layers:
            shares = [step.kept[layer.name] / max(layer.weights, 1) for step in self.history]
            (line,) = axes.plot(steps, shares, label=layer.name or "(model)")
            churns = [step.churn[layer.name] for step in self.history]
            known = [(s, churn) for s, churn in zip(steps, churns, strict=True) if churn]
            axes.plot(*zip(*known, strict=True), ".", color=line.get_color(), alpha=0.5) if known else None
        axes.set(xlabel="step", ylabel="density (line), churn (dots)", yscale="log")
        axes.legend(fontsize="small")
        return axes
