"""Top-K token reduction of Haurum, Escalera, Taylor & Moeslund (2023), with a gradient for its scores.

Their Top-K keeps the tokens that CLS attends to most, by a hard selection. Here a small vision transformer is
trained on MNIST and on Fashion-MNIST with all tokens, then reduced at a quarter, half and three quarters of
its depth to the shares r, r², r³ of its patches: as it is, and after a short fine-tuning in which the
selection is hard, straight-through, soft, or EViT's with a fused token; beside them, merging. At test time
all but merging select hard. Operations are counted, times measured.
"""

# pyright: basic
from __future__ import annotations

import copy
import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from khot.compare.report.grid import Grid
from khot.vision import reduce_tokens
from khot_bench.reproduce.experiments._haurum2023_networks import (
    LOCATIONS,
    TEST_BATCH,
    speed,
    tested,
    train,
    trained,
)
from khot_bench.reproduce.ledger import Ledger, Settings, mean_and_error
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
RATES = (0.9, 0.7, 0.5, 0.25)
SEEDS = 3

ALL, ALL_TUNED = "all tokens", "all tokens, fine-tuned"
METHODS = {  # name: (whether it is fine-tuned, arguments of reduce_tokens)
    "hard, not retrained": (False, {"mode": "hard"}),
    "hard, fine-tuned": (True, {"mode": "hard"}),
    "straight-through, fine-tuned": (True, {"mode": "straight_through"}),
    "soft, fine-tuned": (True, {"mode": "soft"}),
    "EViT, fine-tuned": (True, {"mode": "hard", "fuse": True}),
    "merging, not retrained": (False, {"mode": "merge"}),
    "merging, fine-tuned": (True, {"mode": "merge"}),
}
SPEEDS = {
    "top-k": {"mode": "hard"},
    "EViT": {"mode": "hard", "fuse": True},
    "merging": {"mode": "merge"},
}
"""What is timed: the training makes no difference."""

PUBLISHED = {
    "DeiT-S, all tokens": {1.0: 79.8},
    "EViT without fused token": {0.9: 79.9, 0.7: 79.4, 0.5: 78.4},
}
"""Top-1 on ImageNet in percent, by keep rate."""


def _runs(quick: bool) -> Sequence[Settings]:
    base, tuned, tests = (200, 100, 200) if quick else (240_000, 8_000, 10_000)
    sizes = {"base_images": base, "tuning_images": tuned, "test_images": tests}
    rates = RATES[1:2] if quick else RATES
    runs = []
    cells = [(ALL, 1.0), (ALL_TUNED, 1.0), *((method, rate) for rate in rates for method in METHODS)]
    for seed, data in itertools.product(range(1 if quick else SEEDS), list(DATA)[:1] if quick else DATA):
        runs += [
            {"data": data, "method": method, "keep_rate": rate, "seed": seed, **sizes}
            for method, rate in cells
        ]
    rounds = 5 if quick else 100
    return runs + [
        {"part": "speed", "selection": selection, "keep_rate": rate, "rounds": rounds}
        for rate in rates
        for selection in SPEEDS
    ]


def _run(settings: Settings) -> dict[str, float]:
    torch.set_num_threads(1)
    if settings.get("part") == "speed":
        return speed(settings["keep_rate"], SPEEDS[settings["selection"]], settings["rounds"])
    method, data, seed = settings["method"], settings["data"], settings["seed"]
    model = copy.deepcopy(trained(data, settings["base_images"], seed))
    tuned, arguments = METHODS.get(method, (method == ALL_TUNED, None))
    reduction = None
    if arguments is not None:
        reduction = reduce_tokens(model, settings["keep_rate"], LOCATIONS, **arguments)
    if tuned:
        train(model, data, settings["tuning_images"], rate=5e-4, seed=seed + 1)
    model.eval()
    numbers = tested(model, data, settings["test_images"])
    numbers["tokens"] = float(reduction.tokens_per_stage[-1]) if reduction is not None else 49.0
    return numbers


def _number(ledger: Ledger, name: str, **settings: object) -> float | None:
    found = ledger.select(name, **settings)
    return found[0] if found else None


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    done = [data for data in DATA if ledger.select("accuracy", data=data)]
    return (
        *(_accuracies(ledger, data) for data in done),
        *_costs(ledger),
        _context(),
    )


def _accuracies(ledger: Ledger, data: str) -> Grid:
    def values(method: str, rate: float) -> list[float]:
        return ledger.select("accuracy", data=data, method=method, keep_rate=rate)

    def cell(method: str, rate: float) -> str:
        found = values(method, rate)
        if not found:
            return ""
        mean, error = mean_and_error(found)
        return f"{100 * mean:.1f}" + (f" ± {100 * error:.1f}" if len(found) > 1 else "")

    settings = next(done for done, _ in ledger.runs if done.get("data") == data)
    seeds = len(values(ALL, 1.0))
    averaged = f"Mean ± standard error over {seeds} seeds, each a network;" if seeds > 1 else "One seed;"
    missing = sum(seeds - len(values(method, rate)) for method in METHODS for rate in RATES)
    return Grid(
        caption=f"Accuracy on {DATA[data]} in percent, by keep rate",
        header=("method", *(f"{rate:g}" for rate in (1.0, *RATES))),
        rows=tuple(
            (method, *(cell(method, rate) for rate in (1.0, *RATES))) for method in (ALL, ALL_TUNED, *METHODS)
        ),
        notes=(
            f"{averaged} {settings['test_images']} test images. Trained with {settings['base_images']} "
            f"images, fine-tuned with {settings['tuning_images']}.",
            *([f"{missing} runs of {seeds} seeds are not done yet."] if missing else []),
        ),
        origin=ledger.origin,
    )


def _costs(ledger: Ledger) -> tuple[Grid, ...]:
    speeds = ledger.select("images per second, all tokens", part="speed")
    if not speeds:
        return ()

    def cell(selection: str, rate: float) -> str:
        numbers = [
            _number(ledger, name, selection=selection, keep_rate=rate) for name in ("flops", "speed-up")
        ]
        return "" if numbers[0] is None else f"{numbers[0] / 1e6:.2f} ({numbers[1]:.2f})"

    full = _number(ledger, "flops", method=ALL) or 0.0
    return (
        Grid(
            caption="Million operations for an image, and in brackets how many times faster, by keep rate",
            header=("selection", *(f"{rate:g}" for rate in (1.0, *RATES))),
            rows=(
                ("all tokens", f"{full / 1e6:.2f}", *("" for _ in RATES)),
                *((name, "", *(cell(name, rate) for rate in RATES)) for name in SPEEDS),
            ),
            notes=(
                f"Counted products and convolutions. Time of one core in batches of {TEST_BATCH}, in "
                f"alternation with all tokens: {statistics.median(speeds):.0f} images a second (medians).",
            ),
            origin=ledger.origin,
        ),
    )


def _context() -> Grid:
    return Grid(
        caption="Published, on ImageNet with DeiT-S: top-1 in percent, by keep rate",
        header=("method", *(f"{rate:g}" for rate in (1.0, *RATES))),
        rows=tuple(
            (name, *(f"{values[rate]:.1f}" if rate in values else "" for rate in (1.0, *RATES)))
            for name, values in PUBLISHED.items()
        ),
        notes=("Other data, another network and longer training: for context only.",),
        origin="Liang et al. (2022), arXiv:2202.07800, the table beside their code, checked there.",
    )


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    done = [data for data in DATA if ledger.select("accuracy", data=data)]
    figure, axes = plt.subplots(1, len(done) + 1, figsize=(4.2 * (len(done) + 1), 4.4), layout="constrained")
    for axis, data in zip(axes, done, strict=False):
        for number, method in enumerate(METHODS):
            points = [
                (rate, *(100 * number for number in mean_and_error(found)))
                for rate in RATES
                if (found := ledger.select("accuracy", data=data, method=method, keep_rate=rate))
            ]
            if not points:
                continue
            style = "--" if "not retrained" in method else "-"
            axis.errorbar(
                *zip(*points, strict=True), fmt=f"o{style}", color=f"C{number}", label=method, markersize=4
            )
        for method, colour in ((ALL, "0.6"), (ALL_TUNED, "0.2")):
            found = ledger.select("accuracy", data=data, method=method)
            if found:
                level = 100 * mean_and_error(found)[0]
                axis.axhline(level, color=colour, linewidth=1, linestyle=":", label=method)
        axis.set(title=DATA[data], xlabel="keep rate", ylabel="accuracy, %")
        axis.invert_xaxis()
    for name in SPEEDS:
        points = sorted(
            (r["flops"] / 1e6, r["speed-up"]) for s, r in ledger.runs if s.get("selection") == name
        )
        if points:
            axes[-1].plot(*zip(*points, strict=True), "o-", label=name, markersize=4)
    full = _number(ledger, "flops", method=ALL) or 0.0
    axes[-1].plot(full / 1e6, 1, "k*", label="all tokens")
    axes[-1].set(
        title="cost", xlabel="million operations for an image", ylabel="times faster than with all tokens"
    )
    axes[-1].legend(fontsize="small")
    legend = axes[0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="haurum2023",
    title="fewer tokens in a vision transformer: accuracy by keep rate and method",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib",),
)
