"""The tables and the picture of `khot reproduce sindy`."""

# pyright: basic
from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from khot.compare.report.grid import Grid
from khot_bench.reproduce.equation_methods import METHODS
from khot_bench.reproduce.ledger import Ledger, Numbers, mean_and_error

__all__ = ["LEVELS", "NOISY_SYSTEMS", "ON_LARGE", "ON_SYSTEMS", "PROBLEMS", "STARTS", "draw", "tables"]

LEVELS = (0.0, 0.01, 0.05, 0.1)
NOISY_SYSTEMS = (0.0, 0.01)
STARTS = {
    "greedy": ("greedy",),
    "soft top-k": ("soft",),
    "20 random": ("20 random",),
    "greedy and 20 random": ("greedy", "20 random"),
    "all of them": ("greedy", "20 random", "soft"),
}
PROBLEMS = ("Lorenz, smoothed", "Lorenz, not smoothed", "synthetic")
ON_SYSTEMS = tuple(name for name in METHODS if name != "ExactK, told the total")
ON_LARGE = ("ExactK, told each k", "STLSQ(0.1)", "MIOSR, told each k")


def tables(ledger: Ledger) -> tuple[Grid, ...]:
    """Lorenz, the systems, the large library and the starts, as far as they were run."""
    grids = [_lorenz_table(ledger)]
    for part, make in (("systems", _systems_table), ("large", _large_table), ("search", _search_table)):
        if any(settings["part"] == part for settings, _ in ledger.runs):
            grids.append(make(ledger))
    return tuple(grids)


def _cell(values: Sequence[float], digits: int = 3) -> str:
    if not values:
        return "absent"
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"


def _done(ledger: Ledger, **wanted: Any) -> list[Numbers]:
    """The numbers of runs with these settings that did not fail."""
    return [
        numbers
        for settings, numbers in ledger.runs
        if all(settings.get(key) == value for key, value in wanted.items()) and not numbers.get("failed")
    ]


def _absent(ledger: Ledger, part: str, methods: Iterable[str]) -> str:
    missing = [m for m in methods if not ledger.select("failed", part=part, method=m)]
    return f" Absent, because a package was not installed: {', '.join(missing)}." if missing else ""


def _lorenz_table(ledger: Ledger) -> Grid:
    rows = []
    for method in METHODS:
        runs = [_done(ledger, part="lorenz", method=method, noise=noise) for noise in LEVELS]
        seconds = [run["seconds"] for some in runs for run in some]
        middle = f"{sorted(seconds)[len(seconds) // 2]:.2f} s" if seconds else "absent"
        rows.append((method, *(_cell([run["f1"] for run in some]) for some in runs), middle))
    seeds = len({s["seed"] for s, _ in ledger.runs if s["part"] == "lorenz"})
    return Grid(
        caption="Lorenz's system, 20 terms of degree up to 3: F1 of the terms found",
        header=("optimizer", *(f"noise {100 * noise:g} %" for noise in LEVELS), "fit"),
        rows=tuple(rows),
        notes=(
            f"Mean ± standard error over {seeds} seeds; ten seconds at steps of 0.002, 7 true terms in three "
            "equations, noise as a share of the states' root mean square. Fit: the median of the "
            "processor's time." + _absent(ledger, "lorenz", METHODS),
        ),
        origin=ledger.origin,
    )


def _systems_table(ledger: Ledger) -> Grid:
    ledger = ledger.compared("method", part="systems")
    rows = []
    for method in ON_SYSTEMS:
        cells: list[str] = []
        failed = ledger.select("failed", part="systems", method=method)
        for noise in NOISY_SYSTEMS:
            runs = _done(ledger, part="systems", method=method, noise=noise)
            cells += [
                f"{sum(run['exact'] for run in runs):.0f} of {len(runs)}" if runs else "absent",
                _cell([run["f1"] for run in runs]),
            ]
        rows.append((method, *cells, f"{sum(failed):.0f} of {len(failed)}" if failed else "absent"))
    count = len({s["system"] for s, _ in ledger.runs if s["part"] == "systems"})
    return Grid(
        caption=f"{count} autonomous polynomial systems of dysts: every equation exactly right, and F1",
        header=("optimizer", "exact, no noise", "F1, no noise", "exact, 1 %", "F1, 1 %", "too large"),
        rows=tuple(rows),
        notes=(
            "Systems of degree up to 4 in three or four variables; libraries of degree 3, or 4 where the "
            "system has it; 20 periods of 200 samples, one seed; noise as a share of each coordinate's root "
            "mean square. F1: mean ± standard error over systems. Too large: fits that the restricted "
            "licence of Gurobi refuses; they are left out of the other columns."
            + _absent(ledger, "systems", ON_SYSTEMS),
        ),
        origin=ledger.origin,
    )


def _large_table(ledger: Ledger) -> Grid:
    rows = []
    for method in ON_LARGE:
        cells: list[str] = []
        for noise in (0.0, 0.01):
            runs = _done(ledger, part="large", method=method, noise=noise)
            tried = ledger.select("failed", part="large", method=method, noise=noise)
            if not runs:
                cells += ["too large", ""] if tried else ["absent", ""]
                continue
            seconds = mean_and_error([run["seconds"] for run in runs])[0]
            cells += [_cell([run["f1"] for run in runs]), f"{seconds:.2f} s"]
        rows.append((method, *cells))
    seeds = len({s["seed"] for s, _ in ledger.runs if s["part"] == "large"})
    return Grid(
        caption="Lorenz's system, 286 terms of degree up to 10: F1 and the time of a fit",
        header=("optimizer", "F1, no noise", "fit", "F1, 1 %", "fit"),
        rows=tuple(rows),
        notes=(
            f"Mean ± standard error over {seeds} seeds; the processor's time. Too large: for the restricted "
            "licence of Gurobi." + _absent(ledger, "large", ON_LARGE),
        ),
        origin=ledger.origin,
    )


def _search_table(ledger: Ledger) -> Grid:
    rows = []
    for start in STARTS:
        cells: list[str] = []
        for problem in PROBLEMS:
            shares = ledger.select(start, part="search", problem=problem)
            equations = 1 if problem == "synthetic" else 3
            cells.append(f"{equations * sum(shares):.0f} of {equations * len(shares)}")
        seconds = ledger.select(f"{start} seconds", part="search", problem="Lorenz, smoothed")
        rows.append((start, *cells, f"{1e3 * sorted(seconds)[len(seconds) // 2]:.0f} ms"))
    return Grid(
        caption="Exchange from several starts: fits that end in the best subset of all",
        header=("starts", *PROBLEMS, "time"),
        rows=tuple(rows),
        notes=(
            "Lorenz: 2, 3 and 2 of 20 terms at all levels of noise, with a library of smoothed or of "
            "measured states; synthetic: 5 of 24 correlated columns with as much noise as signal. Best: by "
            "enumeration. Time: the processor's, the median for the three equations of Lorenz's, starts and "
            "exchange.",
        ),
        origin=ledger.origin,
    )


def draw(ledger: Ledger, path: Path) -> None:
    """F1 over noise, and the share of systems that are exactly right."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
    for method in METHODS:
        found = [
            mean_and_error(
                [run["f1"] for run in _done(ledger, part="lorenz", method=method, noise=n)] or [np.nan]
            )
            for n in LEVELS
        ]
        style = "-" if method.startswith("ExactK") else "--"
        axes[0].errorbar(
            range(len(LEVELS)), [f[0] for f in found], [f[1] for f in found], fmt=f"o{style}", label=method
        )
    axes[0].set_xticks(range(len(LEVELS)), [f"{100 * n:g} %" for n in LEVELS])
    axes[0].set(title="Lorenz, degree 3", xlabel="noise", ylabel="F1 of the terms")
    for offset, noise in ((-0.2, 0.0), (0.2, 0.01)):
        shares = [
            mean_and_error(
                [r["exact"] for r in _done(ledger, part="systems", method=m, noise=noise)] or [0.0]
            )[0]
            for m in ON_SYSTEMS
        ]
        places = [place + offset for place in range(len(ON_SYSTEMS))]
        axes[1].barh(places, shares, 0.36, label=f"noise {100 * noise:g} %")
    axes[1].set_yticks(range(len(ON_SYSTEMS)), ON_SYSTEMS)
    axes[1].invert_yaxis()
    axes[1].set(title="systems of dysts", xlabel="share with every equation exactly right")
    axes[1].legend(fontsize="small")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    figure.savefig(path)
    plt.close(figure)
