"""The evaluation of Pietruszka, Borchmann & Graliński (2021), Successive Halving Top-k Operator.

Vectors from U[−1, 1]^{n×32} with scores from U[0, 1], batches of 16: how similar are the k blends to the k
vectors with the largest scores? Measured by nCCS, the mean over these of the best cosine among the blends. On
the whole grid of the paper: successive halving as in the authors' code (the softmax of 20^v), and the
iterative softmax at α = 1, as in their code, and at α = 2, with which their published column agrees. Beside
them the chance level, k vectors chosen blindly.

The two differ in sharpness, which decides most of it. So on a part of the grid every operator is measured at
the temperature at which its rows are as sharp as the tournament's: equal mean of the largest weight in a row.
"""

# pyright: basic
from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from khot.compare.report.grid import Grid
from khot.metrics import nccs
from khot.relaxations import registry, select, topk_matrix
from khot.relaxations.facade import has_rows
from khot.relaxations.rows.successive_halving import successive_halving_select
from khot_bench.reproduce.ledger import Ledger, Settings
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

BATCH, WIDTH = 16, 32
HALVING, CHANCE = "halving", "chance"
ITERATIVE = {"iterative, α = 1": 1.0, "iterative, α = 2": 0.5}
"""By temperature, 1/α."""

# (k, n): nCCS of halving and of the iterative softmax. Means of the measurements that the authors released
# with their code (applicaai/successive-halving-topk), checked there for the smallest and the largest n.
PUBLISHED = {
    (2, 16): (0.968, 0.374), (2, 1024): (0.556, 0.045), (2, 16384): (0.195, 0.020),
    (8, 16): (0.980, 0.400), (8, 1024): (0.844, 0.059), (8, 16384): (0.350, 0.020),
    (32, 64): (0.983, 0.265), (32, 1024): (0.953, 0.071), (32, 16384): (0.566, 0.018),
    (128, 256): (0.985, 0.206), (128, 1024): (0.982, 0.102), (128, 16384): (0.849, 0.025),
    (512, 1024): (0.986, 0.178), (512, 16384): (0.955, 0.044),
    (2048, 4096): (0.986, 0.168), (2048, 16384): (0.982, 0.082),
}  # fmt: skip
PUBLISHED_SECONDS = {2: (0.145, 0.0036), 32: (0.104, 0.051), 128: (0.083, 0.185), 2048: (0.039, 2.84)}
"""By k, at n = 16384, on an A100: halving and the iterative softmax."""

MATCHED = [(16, 2), (64, 8), (256, 8), (256, 64), (1024, 32)]
"""(n, k) at which every operator is measured."""


def _runs(quick: bool) -> Sequence[Settings]:
    sizes = [2**i for i in (range(4, 9) if quick else range(4, 15))]
    budgets = [2**i for i in range(1, 12)]
    cells = [(n, k) for n in sizes for k in budgets if k < n]
    methods = (HALVING, *ITERATIVE, CHANCE)
    runs = [{"part": "grid", "method": method, "n": n, "k": k} for n, k in cells for method in methods]
    rows = [name for name, spec in registry.specs().items() if has_rows(spec) and not spec.stochastic]
    matched = MATCHED[:2] if quick else MATCHED
    return runs + [{"part": "matched", "method": name, "n": n, "k": k} for n, k in matched for name in rows]


def _problem(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    values = 2 * torch.rand(BATCH, n, WIDTH, generator=generator) - 1
    return values, torch.rand(BATCH, n, generator=generator)


def _blends(method: str, values: Tensor, scores: Tensor, k: int) -> Tensor:
    if method == HALVING:
        return successive_halving_select(values, scores, k, boost="base20")[0]
    # One of the batch at a time: the matrix of the largest problem takes 128 MiB.
    pairs = zip(values, scores, strict=True)
    return torch.stack(
        [select(v, s, k, "iterative", temperature=ITERATIVE[method], hard=False).values for v, s in pairs]
    )


def _run(settings: Settings) -> dict[str, float]:
    n, k, method = settings["n"], settings["k"], settings["method"]
    generator = torch.Generator().manual_seed(n + k)
    with torch.no_grad():
        if settings["part"] == "matched":
            return _at_matched_sharpness(method, n, k, generator)
        found: list[float] = []
        seconds: list[float] = []
        for _ in range(min(64, max(4, 512 // k))):
            values, scores = _problem(n, generator)
            true = _gathered(values, scores.topk(k).indices)
            start = time.perf_counter()
            if method == CHANCE:
                blends = _gathered(values, torch.rand(BATCH, n, generator=generator).topk(k).indices)
            else:
                blends = _blends(method, values, scores, k)
            seconds.append(time.perf_counter() - start)
            found.append(nccs(true, blends).mean().item())
    error = statistics.stdev(found) / math.sqrt(len(found))
    return {"nCCS": statistics.mean(found), "error": error, "seconds": statistics.median(seconds)}


def _gathered(values: Tensor, indices: Tensor) -> Tensor:
    return values.gather(1, indices.unsqueeze(-1).expand(*indices.shape, values.shape[-1]))


def _at_matched_sharpness(method: str, n: int, k: int, generator: torch.Generator) -> dict[str, float]:
    """nCCS of an operator whose rows have on average the same largest weight as the tournament's."""
    problems = [_problem(n, generator) for _ in range(8)]
    scores = torch.cat([scores for _, scores in problems])
    wanted = _sharpness(topk_matrix(scores, k, "successive_halving", boost="base20"))

    def sharpness(log_temperature: float) -> float:
        return _sharpness(topk_matrix(scores, k, method, temperature=math.exp(log_temperature)))

    # The coldest crossing: with all ranks pooled, soft ranks are sharp again, around the wrong entries.
    low, high = math.log(1e-8), math.log(1e-7)
    while sharpness(high) > wanted and high < math.log(1e4):
        low, high = high, high + 0.5
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if sharpness(middle) > wanted else (low, middle)
    found = [
        nccs(_gathered(v, s.topk(k).indices), topk_matrix(s, k, method, temperature=math.exp(low)) @ v)
        .mean()
        .item()
        for v, s in problems
    ]
    return {
        "nCCS": statistics.mean(found),
        "error": statistics.stdev(found) / math.sqrt(len(found)),
        "temperature": math.exp(low),
        "sharpness": sharpness(low),
        "wanted": wanted,
    }


def _sharpness(rows: Tensor) -> float:
    return rows.amax(-1).mean().item()


def _number(ledger: Ledger, name: str, **settings: object) -> float | None:
    found = ledger.select(name, **settings)
    return found[0] if found else None


def _cell(ledger: Ledger, method: str, n: int, k: int) -> str:
    value = _number(ledger, "nCCS", part="grid", method=method, n=n, k=k)
    error = _number(ledger, "error", part="grid", method=method, n=n, k=k)
    return "" if value is None or error is None else f"{value:.3f} ± {error:.3f}"


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    shown = [(k, n) for k, n in PUBLISHED if _cell(ledger, HALVING, n, k)]
    quality = Grid(
        caption="nCCS beside the published means",
        header=("k", "n", "halving, published", "halving", "iterative, published", *ITERATIVE, CHANCE),
        rows=tuple(
            (
                str(k),
                str(n),
                f"{PUBLISHED[k, n][0]:.3f}",
                _cell(ledger, HALVING, n, k),
                f"{PUBLISHED[k, n][1]:.3f}",
                *(_cell(ledger, method, n, k) for method in (*ITERATIVE, CHANCE)),
            )
            for k, n in shown
        ),
        notes=(
            "Mean ± standard error over batches. Published: means of the measurements released with the "
            "authors' code, checked there.",
        ),
        origin=ledger.origin,
    )
    return (quality, *_times(ledger), *_matched(ledger))


def _times(ledger: Ledger) -> tuple[Grid, ...]:
    rows: list[tuple[str, ...]] = []
    for k, published in PUBLISHED_SECONDS.items():
        ours = [
            _number(ledger, "seconds", part="grid", method=method, n=16384, k=k)
            for method in (HALVING, "iterative, α = 1")
        ]
        if None not in ours:
            cells = (f"{value:.2g}" for pair in zip(ours, published, strict=True) for value in pair)
            rows.append((str(k), *cells))
    if not rows:
        return ()
    return (
        Grid(
            caption="Seconds for a batch of 16 at n = 16384, forward",
            header=("k", "halving", "halving, published", "iterative", "iterative, published"),
            rows=tuple(rows),
            notes=(
                "Published on an A100, ours on the CPU named below: compare the trends, not the numbers.",
            ),
            origin=ledger.origin,
        ),
    )


def _matched(ledger: Ledger) -> tuple[Grid, ...]:
    cells = [(n, k) for n, k in MATCHED if ledger.select("nCCS", part="matched", n=n, k=k)]
    if not cells:
        return ()
    methods = dict.fromkeys(done["method"] for done, _ in ledger.runs if done["part"] == "matched")
    rows = [(method, *(_matched_cell(ledger, method, n, k) for n, k in cells)) for method in methods]
    chance = (CHANCE, *(_cell(ledger, CHANCE, n, k).split(" ")[0] for n, k in cells))
    targets = (ledger.select("wanted", part="matched", n=n, k=k)[0] for n, k in cells)
    wanted = ("largest weight in a row", *(f"{target:.3f}" for target in targets))
    return (
        Grid(
            caption="nCCS of every operator at equal sharpness",
            header=("operator", *(f"n = {n}, k = {k}" for n, k in cells)),
            rows=(*rows, chance, wanted),
            notes=(
                "At the temperature at which the mean of the largest weight in a row is that of the "
                "tournament with base 20; standard errors are at most "
                f"{max(ledger.select('error', part='matched')):.3f}.",
                "soft_rank and pairwise have one temperature for scores and for ranks, unless `window` is "
                "given: in long rows their windows are narrow before the ranks are right, and all rows "
                "choose alike.",
                "(…): an operator that does not reach that mean within 0.02.",
            ),
            origin=ledger.origin,
        ),
    )


def _matched_cell(ledger: Ledger, method: str, n: int, k: int) -> str:
    where = {"part": "matched", "method": method, "n": n, "k": k}
    value = _number(ledger, "nCCS", **where)
    if value is None:
        return ""
    reached, wanted = ledger.select("sharpness", **where)[0], ledger.select("wanted", **where)[0]
    return f"{value:.3f}" if abs(reached - wanted) < 0.02 else f"({value:.3f})"


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4.8), layout="constrained")
    budgets = sorted({done["k"] for done, _ in ledger.runs if done["part"] == "grid"})
    colours = plt.get_cmap("viridis")
    styles = {HALVING: "-", "iterative, α = 1": "--", CHANCE: ":"}
    for number, k in enumerate(budgets):
        colour = colours(number / max(len(budgets) - 1, 1))
        for method, style in styles.items():
            done = sorted(
                (s["n"], r["nCCS"], r["seconds"])
                for s, r in ledger.runs
                if s["part"] == "grid" and s["method"] == method and s["k"] == k
            )
            n, quality, seconds = zip(*done, strict=True)
            label = f"k = {k}" if method == HALVING else None
            axes[1].plot(n, quality, style, color=colour, label=label, linewidth=1.3)
            if method != CHANCE:
                axes[0].plot(n, seconds, style, color=colour, linewidth=1.3)
    axes[0].set(xscale="log", yscale="log", xlabel="n", ylabel="seconds a batch", title="time (Figure 1)")
    axes[1].set(xscale="log", xlabel="n", ylabel="nCCS", ylim=(0, 1.02), title="quality (Figure 2)")
    legend = {"fontsize": "small", "ncols": len(budgets), "title": "– halving   - - iterative   ··· chance"}
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", **legend)
    _plot_matched(ledger, axes[2])
    figure.savefig(path)
    plt.close(figure)


def _plot_matched(ledger: Ledger, axes) -> None:
    cells = [(n, k) for n, k in MATCHED if ledger.select("nCCS", part="matched", n=n, k=k)]
    methods = list(dict.fromkeys(done["method"] for done, _ in ledger.runs if done["part"] == "matched"))
    for n, k in cells:
        values = [_number(ledger, "nCCS", part="matched", method=method, n=n, k=k) for method in methods]
        axes.plot(values, range(len(methods)), "o", label=f"n = {n}, k = {k}", markersize=5)
    axes.set_yticks(range(len(methods)), methods, fontsize="small")
    axes.invert_yaxis()
    axes.set(xlabel="nCCS", xlim=(0, 1.02), title="every operator at equal sharpness")
    axes.grid(axis="y", linewidth=0.3)
    axes.legend(fontsize="x-small")


REPRODUCTION = Reproduction(
    name="pietruszka2021",
    title="how well successive halving and the iterative softmax approximate top-k",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib",),
)
