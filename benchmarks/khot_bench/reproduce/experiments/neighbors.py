"""Embeddings whose nearest neighbours have the right label: which loss trains them.

One small convolutional encoder and one budget for cross entropy, NCA, the loss of NeuralSort (Grover et al.
2019) and NeighborLoss; then k = 9 nearest neighbours among all training images. Raw pixels are the floor.
The published networks are larger and train for 200 epochs: their figures stand beside, not in comparison.
And how much memory a hundred thousand references take.
"""

# pyright: basic
from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from khot.compare.report.grid import Grid
from khot_bench.reproduce.ledger import Ledger, Numbers, Settings, mean_and_error
from khot_bench.reproduce.neighbor_models import BATCH, LOSSES, K, raw_pixels, train_encoder
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

SEEDS, STEPS = 3, 400
DATA = ("mnist", "fashion-mnist")
RAW_K = 3
"""Of raw pixels, where it is better than more."""

PUBLISHED = {"kNN + NeuralSort, published": "99.5", "kNN + SOFT, published": "99.4"}
TRIED = {
    "NCA": ("scale", (2.0, 8.0, 32.0)),
    "NeuralSort": ("temperature", (0.1, 0.5, 2.0)),
    "NeighborLoss": ("temperature", (0.03, 0.1, 0.3)),
}
_MEMORY = """
import resource, torch
from khot.apps.neighbors import NeighborLoss
torch.set_num_threads(1)
n, d, q = {references}, 128, {queries}
r, labels = torch.randn(n, d), torch.randint(10, (n,))
x = torch.randn(q, d, requires_grad=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
NeighborLoss(9)(x, labels[:q], None, r, labels).backward()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(before / 2**20, after / 2**20)
"""


def _runs(quick: bool) -> Sequence[Settings]:
    if quick:
        runs: list[Settings] = [{"part": "memory", "references": 20_000, "queries": 64}]
        return runs + [
            {"part": "final", "data": "mnist", "seed": 0, "steps": 60, "loss": loss, "options": options}
            for loss, options in LOSSES.items()
        ]
    runs = [{"part": "memory", "references": 100_000, "queries": q} for q in (64, 512)]
    runs += [
        {"part": "tuning", "data": "mnist", "seed": 100, "steps": 150, "loss": loss, "options": {name: value}}
        for loss, (name, values) in TRIED.items()
        for value in values
    ]
    for data in DATA:
        for seed in range(SEEDS):  # a stopped experiment has whole seeds
            runs += [
                {
                    "part": "final",
                    "data": data,
                    "seed": seed,
                    "steps": STEPS,
                    "loss": loss,
                    "options": options,
                }
                for loss, options in LOSSES.items()
            ]
        runs.append({"part": "pixels", "data": data, "k": RAW_K})
    return runs


def _run(settings: Settings) -> Numbers:
    if settings["part"] == "memory":
        code = _MEMORY.format(references=settings["references"], queries=settings["queries"])
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        before, after = map(float, done.stdout.split())
        return {"before": before, "peak": after}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return raw_pixels(settings) if settings["part"] == "pixels" else train_encoder(settings)
    finally:
        torch.set_num_threads(threads)


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    return tuple(grid for grid in (_accuracies(ledger), _tuning(ledger), _memory(ledger)) if grid.rows)


def _cell(values: Sequence[float], digits: int = 2) -> str:
    if not values:
        return ""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"


_LEFT = "blank, or fewer seeds, of which those that every loss has are shown."


def _whole_seeds(ledger: Ledger, data: str) -> Ledger:
    """The final runs on a set with the seeds that every loss has: fair if it was stopped."""
    runs = [run for run in ledger.runs if run[0]["part"] == "final" and run[0]["data"] == data]
    seeds = set.intersection(*({done["seed"] for done, _ in runs if done["loss"] == loss} for loss in LOSSES))
    return Ledger(ledger.name, [run for run in runs if run[0]["seed"] in seeds], ledger.origin)


def _accuracies(ledger: Ledger) -> Grid:
    finals = {data: _whole_seeds(ledger, data) for data in DATA}
    shown = [data for data in DATA if finals[data].runs]
    rows: list[tuple[str, ...]] = []
    for loss in LOSSES:
        cells: list[str] = []
        for data in shown:
            cells.append(_cell(finals[data].select("accuracy", loss=loss)))
            times = finals[data].select("seconds a step", loss=loss)
            cells.append(f"{1000 * sum(times) / len(times):.0f}" if times else "")
        rows.append((f"**{loss}**" if loss == "NeighborLoss" else loss, *cells))
    heads = [_cell(finals[d].select("accuracy of the head", loss="cross entropy")) for d in shown]
    rows.append(("cross entropy, its own head", *(cell for head in heads for cell in (head, ""))))
    cells = [_cell(ledger.select("accuracy", part="pixels", data=data, k=RAW_K)) for data in shown]
    if any(cells):
        rows.append((f"raw pixels, k = {RAW_K}", *(part for cell in cells for part in (cell, ""))))
    if "mnist" in shown:
        rows += [(name, value, *("",) * (2 * len(shown) - 1)) for name, value in PUBLISHED.items()]
    done = [s for s, _ in ledger.runs if s["part"] == "final"]
    steps = max((s["steps"] for s in done), default=0)
    counts = {d: len(finals[d].select("accuracy", loss="NeighborLoss")) for d in shown}
    seeds = ", ".join(f"{data} {count}" for data, count in counts.items())
    planned = [s for s in _runs(quick=False) if s["part"] in ("final", "pixels")]
    left = sum(ledger.find(s) is None for s in planned)
    return Grid(
        caption=f"Test accuracy of {K} nearest neighbours among all training images, percent",
        header=("trained by", *(name for data in shown for name in (data, "ms a step"))),
        rows=tuple(rows) if shown else (),
        notes=(
            f"Mean ± standard error; seeds: {seeds}. "
            f"{steps} steps of {BATCH} images ({steps * BATCH / 60_000:.1f} epochs), the same encoder of two "
            "convolutions, vectors of unit length, neighbours looked for in the batch. Milliseconds "
            "of processor time on one thread.",
            *([f"{left} of {len(planned)} runs are not done yet: {_LEFT}"] if left else []),
            "Published (on MNIST, with larger networks, for 200 epochs): Grover et al. (2019), Xie et "
            "al. (2020); taken over, not checked by us.",
        ),
        origin=ledger.origin,
    )


def _tuning(ledger: Ledger) -> Grid:
    rows = [
        (loss, f"{name} {value:g}", _cell(found))
        for loss, (name, values) in TRIED.items()
        for value in values
        if (found := ledger.select("accuracy", part="tuning", loss=loss, options={name: value}))
    ]
    return Grid(
        caption="What was tried: accuracy on validation images, percent",
        header=("trained by", "with", "accuracy"),
        rows=tuple(rows),
        notes=(
            "150 steps on MNIST without its last 5000 training images, on which this is; one seed of "
            "its own.",
        ),
        origin=ledger.origin,
        text_columns=2,
    )


def _memory(ledger: Ledger) -> Grid:
    rows = [
        (
            f"{done['references']} × 128",
            str(done["queries"]),
            f"{found['before']:.2f}",
            f"{found['peak']:.2f}",
        )
        for done, found in ledger.runs
        if done["part"] == "memory"
    ]
    return Grid(
        caption="Memory of NeighborLoss, forward and backward, GiB",
        header=("references", "queries", "before", "at its peak"),
        rows=tuple(rows),
        notes=(
            "Resident memory of a process of its own, torch included, float32; before: with the data made.",
        ),
        origin=ledger.origin,
    )


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    shown = [data for data in DATA if ledger.select("accuracy", part="final", data=data)] or list(DATA)
    figure, axes = plt.subplots(
        1, len(shown), figsize=(4.6 * len(shown), 3), layout="constrained", squeeze=False
    )
    for axis, data in zip(axes[0], shown, strict=True):
        for place, loss in enumerate(LOSSES):
            found = ledger.select("accuracy", part="final", data=data, loss=loss)
            axis.plot(found, [place] * len(found), "o", color=f"C{place}")
        for value in ledger.select("accuracy", part="pixels", data=data, k=RAW_K):
            axis.axvline(value, color="0.5", linestyle=":")
        axis.set_yticks(range(len(LOSSES)), list(LOSSES))
        axis.invert_yaxis()
        axis.set(title=data, xlabel=f"accuracy of {K} nearest neighbours, %; dotted: raw pixels")
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="neighbors",
    title="nearest neighbours: which loss trains an encoder for them",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib",),
)
