"""Accuracy of sparse networks against their density: khot's masks, pruning, and RigL's rule.

The perceptron 784-300-100-10 (266 200 weights) and a small convolutional network (two convolutions 3 × 3 with
stride 2, of 16 and 32 channels, then 64 and 10 units: 105 744 weights) on MNIST and Fashion-MNIST, all ways
trained alike and as long; and what a step costs. Straight-through was tried first; that it is worse was seen
on test images of one seed. The other two gradients were then chosen on training images left out, with other
seeds.
"""

# pyright: basic
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from khot.compare.report.grid import Grid
from khot_bench.reproduce.ledger import Ledger, Numbers, Settings, mean_and_error
from khot_bench.reproduce.run import Reproduction
from khot_bench.reproduce.sparse_models import BATCH, WAYS, train_sparse
from khot_bench.reproduce.sparse_steps import STEPS, time_steps

__all__ = ["REPRODUCTION"]

DENSITIES = {"perceptron": (0.5, 0.2, 0.1, 0.05, 0.02, 0.01), "convnet": (0.1, 0.05, 0.01)}
DATA = ("mnist", "fashion-mnist")
EPOCHS = 1
NAMES = {"perceptron": "Perceptron 784-300-100-10", "convnet": "Convolutional network 16-32-64-10"}


def _runs(quick: bool) -> Sequence[Settings]:
    runs: list[Settings] = [
        {"part": "time", "network": network, "scope": "global", "quick": quick} for network in DENSITIES
    ]
    # Straight-through last; by data set and seed by seed, so that what was stopped can be shown.
    late = "khot, straight-through"
    first = ["dense", *(way for way in WAYS if way != late)]
    blocks = (("perceptron", first), ("convnet", first), ("perceptron", [late]), ("convnet", [late]))
    for network, ways in blocks:
        densities = (0.05,) if quick else DENSITIES[network]
        for data in ("mnist",) if quick else DATA:
            for seed in range(1 if quick else 3):
                of = {"part": "accuracy", "network": network, "data": data, "seed": seed, "epochs": EPOCHS}
                # Way by way: one-shot pruning trains its dense beginning once for all densities.
                runs += [
                    {**of, "way": way, "density": density}
                    for way in ways
                    for density in ((1.0,) if way == "dense" else densities)
                ]
    return runs


def _run(settings: Settings) -> Numbers:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # steps are small: a second thread does not pay
    torch.set_flush_denormal(True)  # weights that decay become so small that products with them are slow
    try:
        if settings["part"] == "time":
            return time_steps(settings["network"], settings["scope"], settings["quick"])
        return train_sparse(settings)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    grids = [
        _accuracy(ledger, network, data)
        for network in DENSITIES
        for data in DATA
        if ledger.select("accuracy", part="accuracy", network=network, data=data)
    ]
    return (*grids, *([_time(ledger)] if ledger.select("ratio dense", part="time") else []))


def _accuracy(ledger: Ledger, network: str, data: str) -> Grid:
    of = {"part": "accuracy", "network": network, "data": data}
    done = [s for s, _ in ledger.runs if all(s.get(key) == value for key, value in of.items())]
    densities = [d for d in DENSITIES[network] if any(s["density"] == d for s in done)]

    def cell(way: str, density: float) -> str:
        values = ledger.select("accuracy", **of, way=way, density=density)
        if not values:
            return ""
        mean, error = mean_and_error([100 * value for value in values])
        shown = f"{mean:.2f} ± {error:.2f}" if len(values) > 1 else f"{mean:.2f}"
        return shown if len(values) == seeds else f"{shown} ({len(values)})"

    seeds = max(len({s["seed"] for s in done if s["way"] == way}) for way in WAYS)
    dense = cell("dense", 1.0)
    weights = f"{ledger.select('weights', **of)[0]:,.0f}".replace(",", " ")
    rows = [(way, *(cell(way, density) for density in densities)) for way in WAYS]
    return Grid(
        caption=f"{NAMES[network]} on {data}: test accuracy in percent at each density",
        header=("masks", *(f"{100 * density:g} %" for density in densities)),
        rows=(("dense", *(dense for _ in densities)), *rows),
        notes=(
            f"{weights} weights. Mean ± standard error, seeds: {seeds}, or as many as stand in brackets; one "
            f"epoch, batches of {BATCH}, SGD with momentum, learning rate falling to 0. Pruning and khot "
            "choose among the weights of all layers, RigL within layers (ERK). One shot: pruned after 70 % "
            "of the training; "
            "iterative: 10 times between 10 and 70 %; khot: every 10 steps, to its density between them, "
            "with a gradient for kept weights alone, or that of sigmoid top-k at temperature 0.3 and masks "
            "that then stay, or straight-through; RigL: every 20 steps until 75 %.",
        ),
        origin=ledger.origin,
    )


def _time(ledger: Ledger) -> Grid:
    networks = [n for n in DENSITIES if ledger.select("ratio dense", part="time", network=n)]

    def cell(name: str, network: str) -> str:
        ratio, low, high = (
            ledger.select(f"{kind} {name}", part="time", network=network)[-1]
            for kind in ("ratio", "low", "high")
        )
        return f"{ratio:.2f} ({low:.2f}–{high:.2f})"

    return Grid(
        caption="A step of training at density 5 %, global: time as a multiple of the dense step",
        header=("masks", *(NAMES[n] for n in networks)),
        rows=tuple((name, *(cell(name, n) for n in networks)) for name in STEPS),
        notes=(
            f"Batches of {BATCH}; median and quartiles of alternating rounds of 10 steps, one thread. "
            "The dense step against itself says how far a ratio can be trusted.",
        ),
        origin=ledger.origin,
    )


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    panels = [
        (n, d)
        for n in DENSITIES
        for d in DATA
        if ledger.select("accuracy", part="accuracy", network=n, data=d)
    ]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4 * len(panels), 4.2), layout="constrained", squeeze=False
    )
    for axis, (network, data) in zip(axes[0], panels, strict=True):
        of = {"part": "accuracy", "network": network, "data": data}
        for number, way in enumerate(WAYS):
            found = {d: ledger.select("accuracy", **of, way=way, density=d) for d in DENSITIES[network]}
            points = {d: mean_and_error([100 * v for v in values]) for d, values in found.items() if values}
            if points:
                axis.errorbar(
                    [100 * d for d in points],
                    [mean for mean, _ in points.values()],
                    [error for _, error in points.values()],
                    color=f"C{number}",
                    marker="o",
                    markersize=3,
                    capsize=2,
                    label=way,
                )
        dense = ledger.select("accuracy", **of, way="dense")
        if dense:
            axis.axhline(100 * sum(dense) / len(dense), color="0.5", linestyle=":", label="dense")
        axis.set(title=f"{network}, {data}", xlabel="density, %", ylabel="test accuracy, %", xscale="log")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small"
    )
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="sparse",
    title="sparse networks: accuracy against density, beside pruning and RigL's rule",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib",),
)
