"""From letters to phonemes: what training through a soft beam adds to a network trained by cross entropy.

Words of CMUdict, a small recurrent network with attention, trained by cross entropy; then the same network
trained on, by more cross entropy or through a soft beam of width 3 with a Hamming loss, as many steps; each
decoded by beams of width 1, 3 and 5. Learning rates, temperature and lengths were set beforehand, not tuned.
"""

# pyright: basic
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from khot.compare.report.grid import Grid
from khot_bench.reproduce.ledger import Ledger, Numbers, Settings, mean_and_error
from khot_bench.reproduce.run import Reproduction
from khot_bench.reproduce.spelling_models import (
    BATCH,
    BEAMS,
    TEMPERATURES,
    TRAINED_BEAM,
    WAYS,
    train_spelling,
)

__all__ = ["REPRODUCTION"]


def _runs(quick: bool) -> Sequence[Settings]:
    seeds, steps, more = (1, 200, 20) if quick else (3, 800, 100)
    return [
        {"seed": seed, "steps": steps, "more": more, "way": way} for seed in range(seeds) for way in WAYS
    ]  # a stopped experiment has whole seeds


def _run(settings: Settings) -> Numbers:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # steps are small: a second thread does not pay
    try:
        return train_spelling(settings)
    finally:
        torch.set_num_threads(threads)


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    def cell(number: str, way: str) -> str:
        mean, error = mean_and_error([100 * value for value in ledger.select(number, way=way)])
        return f"{mean:.2f} ± {error:.2f}"

    def gain(number: str) -> str:
        pairs = zip(
            ledger.select(number, way="soft beam"), ledger.select(number, way="cross entropy"), strict=False
        )
        mean, error = mean_and_error([100 * (a - b) for a, b in pairs])
        return f"{mean:+.2f} ± {error:.2f}"

    numbers = [f"{kind} {k}" for kind in ("phonemes", "words") for k in BEAMS]
    done = [s for s, _ in ledger.runs]
    rows = [
        (way, *(cell(number, way) for number in numbers))
        for way in WAYS
        if ledger.select(numbers[0], way=way)
    ]
    if len(rows) == len(WAYS):
        rows.append(("soft beam − cross entropy, paired", *(gain(number) for number in numbers)))
    return (
        Grid(
            caption="From letters to phonemes on CMUdict: errors in percent",
            header=(
                "trained by",
                *(f"{kind} error, beam {k}" for kind in ("phoneme", "word") for k in BEAMS),
            ),
            rows=tuple(rows),
            notes=(
                f"Mean ± standard error over {len({s['seed'] for s in done})} seeds; 20 000 words to train, "
                f"1000 to test. Warm start: {done[0]['steps']} steps of {BATCH} words by cross entropy; the "
                f"others {done[0]['more']} more, by cross entropy, or through a soft beam of width "
                f"{TRAINED_BEAM} at temperature {TEMPERATURES['soft beam']:g} with the Hamming loss.",
            ),
            origin=ledger.origin,
        ),
    )


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, kind in zip(axes, ("phonemes", "words"), strict=True):
        for way in WAYS:
            found = [
                mean_and_error([100 * v for v in ledger.select(f"{kind} {k}", way=way)] or [0.0])
                for k in BEAMS
            ]
            axis.errorbar(
                BEAMS, [f[0] for f in found], [f[1] for f in found], marker="o", capsize=2, label=way
            )
        axis.set(xlabel="width of the beam", ylabel=f"{kind[:-1]} error, %", xticks=BEAMS)
    axes[0].legend(fontsize="small")
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="beam",
    title="from letters to phonemes: cross entropy, and training through a soft beam",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib", "cmudict"),
)
