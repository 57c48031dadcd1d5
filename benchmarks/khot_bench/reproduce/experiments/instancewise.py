"""Other features for each row, where the truth is known: Syn1 to Syn6 of L2X and INVASE."""

# pyright: basic
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from khot.compare.report.grid import Grid
from khot_bench.reproduce.explained_rows import BATCH, METHODS, PROBLEMS, ROWS, explain
from khot_bench.reproduce.ledger import Ledger, Numbers, Settings, mean_and_error
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

SEEDS, STEPS = 3, 1200


def _runs(quick: bool) -> Sequence[Settings]:
    seeds, steps, problems = (1, 200, ("syn1", "syn4")) if quick else (SEEDS, STEPS, tuple(PROBLEMS))
    return [
        {"problem": problem, "seed": seed, "steps": steps, "method": method}
        for seed in range(seeds)  # a stopped experiment has whole seeds
        for problem in problems
        for method in (*METHODS, "random")
    ]


def _run(settings: Settings) -> Numbers:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return explain(settings)
    finally:
        torch.set_num_threads(threads)


def _percent(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean, error = mean_and_error(values)
    return f"{100 * mean:.1f} ± {100 * error:.1f}" if len(values) > 1 else f"{100 * mean:.1f}"


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    shown = [problem for problem in PROBLEMS if ledger.select("k", problem=problem)]
    rows: list[tuple[str, ...]] = []
    for method in (*METHODS, "random"):
        cells = [
            _percent(ledger.select(number, problem=problem, method=method))
            for problem in shown
            for number in ("true positives", "false discoveries")
        ]
        rows.append((method, *cells))
    least = [_percent(ledger.select("least false", problem=p, method="random")[:1]) for p in shown]
    rows.append(("the least there can be", *(cell for value in least for cell in ("", value))))
    ks = ", ".join(f"{p} {ledger.select('k', problem=p)[0]:.0f}" for p in shown)
    steps = max(done["steps"] for done, _ in ledger.runs)
    seeds = len({done["seed"] for done, _ in ledger.runs})
    return (
        Grid(
            caption="Deciding features that were selected (TPR), and selected ones that do not decide "
            "(FDR), percent",
            header=("selection", *(f"{problem} {rate}" for problem in shown for rate in ("TPR", "FDR"))),
            rows=tuple(rows),
            notes=(
                f"Mean ± standard error over {seeds} seeds; {ROWS} rows to train on, {ROWS} others to "
                f"test, {steps} "
                f"steps of {BATCH}. k is the largest number of deciding features: {ks}; where a row has "
                f"fewer, some "
                "must be false. Nothing was tuned.",
            ),
            origin=ledger.origin,
        ),
    )


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), sharex=True, layout="constrained")
    shown = [problem for problem in PROBLEMS if ledger.select("k", problem=problem)]
    for axis, number in zip(axes, ("true positives", "false discoveries"), strict=True):
        for place, method in enumerate((*METHODS, "random")):
            found = [mean_and_error(ledger.select(number, problem=p, method=method) or [0.0]) for p in shown]
            places = [i + 0.2 * (place - 1.5) for i in range(len(shown))]
            axis.bar(places, [f[0] for f in found], 0.18, yerr=[f[1] for f in found], label=method)
        axis.set_xticks(range(len(shown)), shown)
        axis.set(title=number, ylim=(0, 1))
    axes[0].legend(fontsize="small")
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="instancewise",
    title="other features for each row: Syn1 to Syn6, where the truth is known",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib",),
)
