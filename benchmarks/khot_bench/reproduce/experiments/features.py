"""Exactly k features: how good are the features that each selector chooses, and how stable.

After the protocol of LassoNet (Lemhadri, Ruan, Abraham & Tibshirani 2021): select on the training rows, train
ExtraTrees(50) on what was selected, and test; paired splits. Images, speech and proteins at k = 50, 25, 10;
gene expression at k = 10, 5, 25, where rows are fewer than features by a hundred and the chosen sets are
compared.
"""

# pyright: basic
from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from khot.compare.report.grid import Grid
from khot_bench.reproduce.feature_selectors import SELECTORS, Chosen, Selector, is_installed
from khot_bench.reproduce.feature_sets import GENES, IMAGES, SETS, parts_of
from khot_bench.reproduce.ledger import Ledger, Numbers, Settings, mean_and_error
from khot_bench.reproduce.limited import within
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

SPLITS = 5
MEMORY = 6
"""GiB that a selector may use."""

LARGE = tuple(name for name in SETS if name not in GENES)
KS = {False: (50, 25, 10), True: (10, 5, 25)}
"""By whether it is a set of genes; the first is what the bars are about."""

OURS = "TopKSelector"
PUBLISHED = {
    "Fisher score, published": (0.818, 0.660, 0.996),
    "HSIC-Lasso, published": (0.869, 0.775, 0.996),
    "PFA, published": (0.879, 0.784, 0.997),
    "LassoNet, published": (0.892, 0.794, 0.997),
}
"""At k = 50, on MNIST-10k, Fashion-10k and Mice: Lemhadri et al., table 2, checked there."""


def _runs(quick: bool) -> Sequence[Settings]:
    if quick:
        methods = [m for m, s in SELECTORS.items() if is_installed(s) and s.large_splits == SPLITS]
        return [
            {"data": data, "k": KS[data in GENES][0], "split": 0, "method": method}
            for data in ("isolet", "mice")
            for method in ("all", *methods)
        ]
    return [*_wanted(first=True), *_wanted(first=False)]


def _wanted(first: bool) -> list[Settings]:
    """The runs at the first k of each set, or at the others; whole splits first, and slow selectors last."""
    runs: list[Settings] = []
    for split, data in itertools.product(range(SPLITS), ("isolet", *GENES, "mice", *IMAGES)):
        for k in KS[data in GENES][:1] if first else KS[data in GENES][1:]:
            runs += [
                {"data": data, "k": k, "split": split, "method": method}
                for method, selector in SELECTORS.items()
                # A ranking gives every k at once.
                if is_installed(selector)
                and split < _splits(selector, data)
                and (first or not selector.ranks)
            ]
            if first:
                runs.append({"data": data, "k": k, "split": split, "method": "all"})
    return sorted(runs, key=lambda run: run["method"] != "all" and SELECTORS[run["method"]].slow)


def _splits(selector: Selector, data: str) -> int:
    """On how many splits of a set it runs."""
    if data in selector.once:
        return 1
    return selector.gene_splits if data in GENES else selector.large_splits


def _run(settings: Settings) -> Numbers:
    from sklearn.ensemble import ExtraTreesClassifier

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        data, split, method = settings["data"], settings["split"], settings["method"]
        (x, y), _, (tests, answers) = parts_of(data, split)
        trees = ExtraTreesClassifier(50, random_state=split)
        if method == "all":
            return {"accuracy all": trees.fit(x, y).score(tests, answers)}
        selector = SELECTORS[method]
        ks = KS[data in GENES] if selector.ranks else (settings["k"],)
        timed = within(selector.seconds, MEMORY, _timed, selector, x, y, ks, split)
        if timed is None:
            return {f"unfinished {k}": float(selector.seconds) for k in ks}
        chosen, seconds = timed
        numbers: Numbers = {"seconds": seconds}
        for k, features in chosen.items():
            trees.fit(x[:, features], y)
            numbers[f"accuracy {k}"] = trees.score(tests[:, features], answers)
            numbers[f"count {k}"] = float(len(set(features.tolist())))
            if data in GENES:
                numbers |= {
                    f"chosen {k} {place}": float(f) for place, f in enumerate(sorted(features.tolist()))
                }
        return numbers
    finally:
        torch.set_num_threads(threads)


def _timed(
    selector: Selector, x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int
) -> tuple[Chosen, float]:
    start = time.process_time()
    return selector.select(x, y, ks, seed), time.process_time() - start


def _found(ledger: Ledger, number: str, data: str, method: str) -> dict[int, float]:
    """The number by split."""
    return {
        done["split"]: numbers[number]
        for done, numbers in ledger.runs
        if done["data"] == data and done["method"] == method and number in numbers
    }


def _cell(values: Sequence[float], digits: int = 3) -> str:
    if not values:
        return ""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}¹"


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    grids = [_accuracies(ledger, LARGE, k) for k in KS[False]] + [
        _accuracies(ledger, GENES, k) for k in KS[True]
    ]
    grids = [grid for grid in grids if len(grid.rows) > 2]
    return (*grids[:1], _bars(ledger), *grids[1:], *_stability(ledger))


def _accuracies(ledger: Ledger, sets: Sequence[str], k: int) -> Grid:
    shown = [data for data in sets if _found(ledger, f"accuracy {k}", data, OURS)]
    rows: list[tuple[str, ...]] = []
    absent = [
        m
        for m in SELECTORS
        if not any(_found(ledger, f"{what} {k}", d, m) for d in shown for what in ("accuracy", "unfinished"))
    ]
    for method in SELECTORS:
        if method in absent:
            continue
        cells: list[str] = []
        for data in shown:
            stopped = _found(ledger, f"unfinished {k}", data, method)
            found = _cell(list(_found(ledger, f"accuracy {k}", data, method).values()))
            cells.append(found or ("²" if stopped else ""))
            times = [
                numbers["seconds"]
                for done, numbers in ledger.runs
                if (done["data"], done["method"]) == (data, method) and f"accuracy {k}" in numbers
            ]
            cells.append(f"{sum(times) / len(times):.1f}" if times else "")
        rows.append((f"**{method}**" if method == OURS else method, *cells))
    every = [(_cell(list(_found(ledger, "accuracy all", data, "all").values())), "") for data in shown]
    rows.append(("all features", *itertools.chain(*every)))
    if k == KS[False][0] and sets is LARGE:
        for name, values in PUBLISHED.items():
            given = dict(zip(("mnist", "fashion-mnist", "mice"), values, strict=True))
            pairs = ((f"{given[data]:.3f}" if data in given else "", "") for data in shown)
            rows.append((name, *itertools.chain(*pairs)))
    done = ", ".join(f"{data} {len(_found(ledger, f'accuracy {k}', data, OURS))}" for data in shown)
    left = [m for m in absent if any(_splits(SELECTORS[m], data) for data in shown)]
    minutes = " or ".join(str(seconds // 60) for seconds in sorted({s.seconds for s in SELECTORS.values()}))
    notes = [f"{name}: {s.note}" for name, s in SELECTORS.items() if s.note and name not in absent]
    return Grid(
        caption=f"k = {k}: test accuracy of ExtraTrees(50) on the selected features",
        header=("selector", *itertools.chain(*((data, "s") for data in shown))),
        rows=tuple(rows),
        notes=(
            f"Mean ± standard error over paired splits (ours: {done}; others at most {SPLITS}); ¹ one split; "
            f"² stopped, not finished in {minutes} minutes and {MEMORY} GiB; blank: not run. s: "
            "processor seconds of one fit (of all k for a ranking), on one thread.",
            "; ".join(notes) + ".",
            *([f"Not run yet, or not installed: {', '.join(left)}."] if left else []),
        ),
        origin=ledger.origin,
    )


def _rivals(ledger: Ledger, data: str, k: int) -> dict[str, dict[int, float]]:
    """Accuracies by split of the baselines that have all splits that ours has."""
    skipped = {OURS, "TopKSelector, linear", "random"}
    found = {m: _found(ledger, f"accuracy {k}", data, m) for m in SELECTORS if m not in skipped}
    ours = _found(ledger, f"accuracy {k}", data, OURS)
    return {m: values for m, values in found.items() if values.keys() >= ours.keys()}


def _bars(ledger: Ledger) -> Grid:
    """Paired differences to the best baseline, which is chosen after the fact: that favours it."""
    rows: list[tuple[str, ...]] = []
    for data in SETS:
        k = KS[data in GENES][0]
        ours, rivals = _found(ledger, f"accuracy {k}", data, OURS), _rivals(ledger, data, k)
        if len(ours) < 2 or not rivals:
            continue
        best = max(rivals, key=lambda m: sum(rivals[m].values()) / len(rivals[m]))
        both = sorted(ours.keys() & rivals[best].keys())
        mean, error = mean_and_error([ours[split] - rivals[best][split] for split in both])
        if data == "mice":
            met = "no bar"
        else:
            met = "met" if (mean > error if data not in GENES else mean >= -error) else "not met"
        rows.append((data, str(k), str(len(both)), best, f"{mean:+.3f} ± {error:.3f}", met))
    return Grid(
        caption=f"{OURS} against the best of the other selectors on the same splits",
        header=("data", "k", "splits", "best other", "paired difference", "bar"),
        rows=tuple(rows),
        notes=(
            "Bar: on images and speech, better by more than one standard error of the paired "
            "difference; on genes, "
            "not worse by more than one. The other is the best of those with all splits, by its test "
            "accuracy.",
        ),
        origin=ledger.origin,
    )


def _sets(ledger: Ledger, data: str, method: str, k: int) -> list[set[float]]:
    return [
        {value for name, value in numbers.items() if name.startswith(f"chosen {k} ")}
        for done, numbers in ledger.runs
        if done["data"] == data and done["method"] == method and f"accuracy {k}" in numbers
    ]


FEATURES = {"nci60": 6830, "khan": 2308, "golub": 3051}


def overlap(a: set[float], b: set[float], n: int) -> tuple[float, float]:
    """Jaccard's index of two sets, and Kuncheva's, which is 0 by chance, for sets of one size of n."""
    common, k = len(a & b), len(a)
    return common / len(a | b), (common * n - k * k) / (k * (n - k))


def _stability(ledger: Ledger) -> list[Grid]:
    k = KS[True][0]
    shown = [data for data in GENES if len(_sets(ledger, data, OURS, k)) > 1]
    rows: list[tuple[str, ...]] = []
    for method in SELECTORS:
        cells: list[str] = []
        for data in shown:
            found = [s for s in _sets(ledger, data, method, k) if len(s) == k]
            pairs = [overlap(a, b, FEATURES[data]) for a, b in itertools.combinations(found, 2)]
            cells += [f"{np.mean([p[i] for p in pairs]):.2f}" if pairs else "" for i in (0, 1)]
        if any(cells):
            rows.append((method, *cells))
    if not rows:
        return []
    return [
        Grid(
            caption=f"Stability: how alike the sets of k = {k} genes of two splits are",
            header=("selector", *(f"{data} {index}" for data in shown for index in ("Jaccard", "Kuncheva"))),
            rows=tuple(rows),
            notes=(
                "Mean over pairs of splits, whose training rows overlap; 1 is the same set, Kuncheva 0 "
                "is chance.",
            ),
            origin=ledger.origin,
        )
    ]


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    shown = [
        data for data in SETS if any(_found(ledger, f"accuracy {k}", data, OURS) for k in KS[data in GENES])
    ]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(2.6 * len(shown), 3.6), layout="constrained", squeeze=False
    )
    for axis, data in zip(axes[0], shown, strict=True):
        for place, method in enumerate(SELECTORS):
            points = [
                (k, *mean_and_error(list(values.values())))
                for k in sorted(KS[data in GENES])
                if (values := _found(ledger, f"accuracy {k}", data, method))
            ]
            if points:
                k, mean, error = zip(*points, strict=True)
                width = 2.2 if method == OURS else 1.0
                axis.errorbar(
                    k, mean, error, label=method, color=f"C{place % 10}", linewidth=width, marker="."
                )
        axis.set(title=data, xlabel="k")
    axes[0][0].set_ylabel("test accuracy")
    handles = {h.get_label(): h for axis in axes[0] for h in axis.get_legend_handles_labels()[0]}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, fontsize="small")
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="features",
    title="feature selection: exactly k features, judged by ExtraTrees",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib", "scikit-learn"),
)
