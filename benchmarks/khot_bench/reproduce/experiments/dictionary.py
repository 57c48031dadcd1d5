"""Dictionaries with exactly k atoms a patch, in training too, beside those of other packages.

Patches of pictures of scikit-image: how well a dictionary learned on the left half of a picture describes the
right half with k atoms, and what averaging such descriptions of a noisy picture's own patches makes of it.
"""

# pyright: basic
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from khot.compare.report.grid import Grid, seconds_text
from khot_bench.reproduce.ledger import Ledger, Numbers, Settings, mean_and_error
from khot_bench.reproduce.picture_dictionaries import (
    ATOMS,
    METHODS,
    PASSES,
    PICTURES,
    SIDE,
    TESTED,
    TRAINED,
    available,
    denoise,
    describe_patches,
)
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

ATOMS_BY_NOISE = {15: 4, 25: 2, 50: 1}
"""k for each σ, set on another picture (coins)."""

DESCRIBED = 5
"""k of the clean patches."""


def _runs(quick: bool) -> Sequence[Settings]:
    pictures, seeds = (PICTURES[:2], 1) if quick else (PICTURES, 3)
    methods = [method for method in METHODS if available(method)]
    runs: list[Settings] = []
    for seed in range(seeds):  # a stopped experiment has whole seeds
        runs += [
            {"part": "patches", "picture": name, "seed": seed, "k": DESCRIBED, "method": method}
            for name in pictures[:3]
            for method in methods
        ]
        runs += [
            {"part": "noise", "picture": name, "seed": seed, "sigma": sigma, "k": k, "method": method}
            for name in pictures
            for sigma, k in ATOMS_BY_NOISE.items()
            for method in methods
        ]
    return runs


def _run(settings: Settings) -> Numbers:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        name, k, seed, method = (settings[key] for key in ("picture", "k", "seed", "method"))
        if settings["part"] == "patches":
            return describe_patches(method, name, k, seed)
        return denoise(method, name, settings["sigma"], k, seed)
    finally:
        torch.set_num_threads(threads)


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    return (_patches_table(ledger), _noise_table(ledger))


def _times(ledger: Ledger, part: str, method: str) -> tuple[str, str]:
    """The medians of learning and of coding."""
    fit, code = (sorted(ledger.select(number, part=part, method=method)) for number in ("fit", "code"))
    return seconds_text(fit[len(fit) // 2]), seconds_text(code[len(code) // 2])


def _counts(ledger: Ledger, part: str) -> str:
    done = [settings for settings, _ in ledger.runs if settings["part"] == part]
    pictures, seeds = ({settings[key] for settings in done} for key in ("picture", "seed"))
    runs = len(done) // len({settings["method"] for settings in done})
    return (
        f"{len(pictures)} pictures ({', '.join(sorted(pictures))}), {len(seeds)} seeds, {runs} runs of each"
    )


def _patches_table(ledger: Ledger) -> Grid:
    ledger = ledger.compared("method", part="patches")
    rows = []
    for method in METHODS:
        errors = ledger.select("error", part="patches", method=method)
        if not errors:
            rows.append((method, "absent", "", ""))
            continue
        rows.append((method, f"{mean_and_error(errors)[0]:.4f}", *_times(ledger, "patches", method)))
    return Grid(
        caption=f"{DESCRIBED} of {ATOMS} atoms for each patch: squared error as a share, on patches not seen",
        header=("dictionary", "error", "learning", "coding"),
        rows=tuple(rows),
        notes=(
            f"8 × 8 patches without their means; learned on {TRAINED} of the left half of a picture, "
            f"measured on {TESTED} of the right; mean over {_counts(ledger, 'patches')}. Times: of the "
            "processor, medians, each with its own coder. Absent: the package was not installed.",
        ),
        origin=ledger.origin,
    )


def _noise_table(ledger: Ledger) -> Grid:
    ledger = ledger.compared("method", part="noise")
    rows: list[tuple[str, ...]] = []
    noisy = [_psnr(ledger, next(iter(METHODS)), sigma, "noisy") for sigma in ATOMS_BY_NOISE]
    rows.append(("the noisy picture", *(cell for value in noisy for cell in (f"{value:.2f}", "")), "", ""))
    present = [method for method in METHODS if ledger.select("psnr", part="noise", method=method)]
    for method in METHODS:
        if method not in present:
            rows.append((method, *("absent",) * 2 * len(ATOMS_BY_NOISE), "", ""))
            continue
        cells: list[str] = []
        for sigma in ATOMS_BY_NOISE:
            best = max(_psnr(ledger, other, sigma) for other in present)
            mean = _psnr(ledger, method, sigma)
            cells += [f"{mean:.2f}", f"{mean - best:+.2f}" if mean < best else "best"]
        rows.append((method, *cells, *_times(ledger, "noise", method)))
    pairs = ((f"σ = {sigma}, k = {k}", "to the best") for sigma, k in ATOMS_BY_NOISE.items())
    header = [cell for pair in pairs for cell in pair]
    return Grid(
        caption="Denoising by descriptions with k atoms: peak signal-to-noise ratio in dB",
        header=("dictionary", *header, "learning", "coding"),
        rows=tuple(rows),
        notes=(
            f"{SIDE} × {SIDE} pixels; {ATOMS} atoms learned on {TRAINED} patches of the noisy picture, every "
            f"second patch described, descriptions averaged; mean over {_counts(ledger, 'noise')}. k was set "
            f"on another picture; MiniBatchDictionaryLearning has {PASSES} passes and a penalty that grows "
            "with the noise. Times: of the processor, medians, each with its own coder.",
        ),
        origin=ledger.origin,
    )


def _psnr(ledger: Ledger, method: str, sigma: int, number: str = "psnr") -> float:
    return mean_and_error(ledger.select(number, part="noise", method=method, sigma=sigma))[0]


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    ledger = Ledger(
        ledger.name,
        [run for part in ("patches", "noise") for run in ledger.compared("method", part=part).runs],
    )
    present = [method for method in METHODS if ledger.select("psnr", part="noise", method=method)]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for method in present:
        fits = ledger.select("fit", part="patches", method=method)
        axes[0].plot(fits, ledger.select("error", part="patches", method=method), "o", label=method)
    axes[0].set(
        xscale="log",
        xlabel="seconds of the processor",
        ylabel="squared error, share",
        title="patches not seen",
    )
    for place, method in enumerate(present):
        differences = [
            _psnr(ledger, method, sigma) - _psnr(ledger, method, sigma, "noisy") for sigma in ATOMS_BY_NOISE
        ]
        spots = [spot + 0.2 * place for spot in range(len(differences))]
        axes[1].bar(spots, differences, 0.18, label=method)
    names = [f"σ = {sigma}" for sigma in ATOMS_BY_NOISE]
    axes[1].set_xticks([spot + 0.3 for spot in range(len(names))], names)
    axes[1].set(ylabel="gain over the noisy picture, dB", title="denoising")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="dictionary",
    title="dictionaries with exactly k atoms a patch, beside other packages",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib", "scikit-learn", "scikit-image"),
)
