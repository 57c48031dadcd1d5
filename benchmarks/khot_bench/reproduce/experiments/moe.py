"""Routers that learn and routers that do not: which routing trains a mixture of experts.

A character model of Mixtral's kind on the King James Bible, 8 experts, top-1 and top-2, with every routing,
with and without a balance loss, beside dense networks of one, two and eight experts' width; a small mixture
on scikit-learn's digits; and how often float32 and bfloat16 choose other experts, or have a tie at the cut.
In training a routing may be soft or drawn; every test takes the k largest.
"""

# pyright: basic
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from khot.compare.report.grid import Grid
from khot_bench.reproduce.ledger import Ledger, Numbers, Settings, mean_and_error
from khot_bench.reproduce.routed_models import (
    BATCH,
    COEFFICIENT,
    CONTEXT,
    DENSE,
    HIDDEN,
    LAYERS,
    ROUTERS,
    WIDTH,
    train_digits,
    train_text,
)
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]


def _runs(quick: bool) -> Sequence[Settings]:
    seeds, steps, digit_steps, ks = (1, 100, 100, (1,)) if quick else (3, 800, 400, (1, 2))
    runs: list[Settings] = [{"part": "precision", "seed": seed} for seed in range(seeds)]
    for seed in range(seeds):  # a stopped experiment has whole seeds
        of = {"part": "text", "seed": seed, "steps": steps}
        runs += [{**of, "router": name, "k": 0, "balance": False} for name in DENSE]
        for part, length in (("text", steps), ("digits", digit_steps)):
            runs += [
                {"part": part, "seed": seed, "steps": length, "router": name, "k": k, "balance": balance}
                for k in ks
                for name in ROUTERS
                for balance in (False, True)
            ]
    return runs


def _run(settings: Settings) -> Numbers:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # steps are small: a second thread does not pay
    try:
        if settings["part"] == "precision":
            return _precision(settings["seed"])
        return train_text(settings) if settings["part"] == "text" else train_digits(settings)
    finally:
        torch.set_num_threads(threads)


def _precision(seed: int) -> Numbers:
    """Shares of 4096 tokens whose 8 of 64 experts differ from those of float32, and that have a tie at the
    cut."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(4096, 256, generator=generator)
    weight = torch.randn(64, 256, generator=generator) / 16
    exact = hidden @ weight.T
    low = (hidden.bfloat16() @ weight.bfloat16().T).float()
    kinds = {
        "bfloat16 logits": low,
        "bfloat16 probabilities": low.softmax(-1).bfloat16().float(),
        "bfloat16 model, float32 router": hidden.bfloat16().float() @ weight.bfloat16().float().T,
        "float32 logits": exact,
    }
    wanted = exact.sort(stable=True, descending=True).indices[:, :8].sort().values
    numbers: Numbers = {}
    for name, scores in kinds.items():
        values, order = scores.sort(stable=True, descending=True)
        numbers[f"differ {name}"] = (order[:, :8].sort().values != wanted).any(-1).double().mean().item()
        numbers[f"tie {name}"] = (values[:, 7] == values[:, 8]).double().mean().item()
    return numbers


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    grids = [_text_table(ledger, k) for k in (1, 2) if ledger.select("test", part="text", k=k)]
    grids += [_digits_table(ledger)] if ledger.select("accuracy", part="digits") else []
    return (*grids, _precision_table(ledger))


def _cell(ledger: Ledger, number: str, digits: int = 3, **settings: object) -> str:
    values = ledger.select(number, **settings)
    if not values:
        return ""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"


def _text_table(ledger: Ledger, k: int) -> Grid:
    rows: list[tuple[str, ...]] = [
        (name, _cell(ledger, "test", part="text", router=name), *("",) * 7)
        for name in DENSE
        if ledger.select("test", part="text", router=name)
    ]
    for name in ROUTERS:
        cells = [
            _cell(ledger, number, digits, part="text", router=name, k=k, balance=balance)
            for number, digits in (("test", 3), ("router gradient", 4), ("entropy", 2), ("collapsed", 2))
            for balance in (False, True)
        ]
        rows.append((name, *cells))
    done = [s for s, _ in ledger.runs if s["part"] == "text" and s["k"] == k]
    steps, seeds = max(s["steps"] for s in done), len({s["seed"] for s in done})
    tokens = steps * BATCH * CONTEXT
    return Grid(
        caption=f"Character model on the King James Bible, top-{k} of 8 experts: test loss, nats a character",
        header=(
            "router",
            "loss",
            "loss, balanced",
            "router gradient",
            "balanced",
            "usage entropy",
            "balanced",
            "collapsed",
            "balanced",
        ),
        rows=tuple(rows),
        notes=(
            f"Mean ± standard error over {seeds} seeds; {steps} steps of {BATCH} × {CONTEXT} characters, "
            f"{tokens / 1e6:.2f} million in all; {LAYERS} layers, hidden {HIDDEN}, experts of width {WIDTH}; "
            "learning rate and temperatures were set beforehand. Balanced: with "
            f"{COEFFICIENT} × the balance loss of the selection used. Router gradient: mean norm over "
            "training. Collapsed: the share of layers in which half of the experts have less than a tenth of "
            "the even share. "
            "The curves show whether runs had converged.",
        ),
        origin=ledger.origin,
    )


def _digits_table(ledger: Ledger) -> Grid:
    ks = [k for k in (1, 2) if ledger.select("accuracy", part="digits", k=k)]
    rows = [
        (
            name,
            *(
                _cell(ledger, number, digits, part="digits", router=name, k=k, balance=balance)
                for k in ks
                for number, digits in (("accuracy", 3), ("entropy", 2), ("collapsed", 2))
                for balance in (False, True)
            ),
        )
        for name in ROUTERS
    ]
    done = [s for s, _ in ledger.runs if s["part"] == "digits"]
    header = [
        f"top-{k} {number}{', balanced' if balance else ''}"
        for k in ks
        for number in ("accuracy", "entropy", "collapsed")
        for balance in (False, True)
    ]
    return Grid(
        caption="A mixture of 8 experts on patches of digits: test accuracy",
        header=("router", *header),
        rows=tuple(rows),
        notes=(
            f"Mean ± standard error over {len({s['seed'] for s in done})} seeds, "
            f"{max(s['steps'] for s in done)} steps of 64 images, 599 test images.",
        ),
        origin=ledger.origin,
    )


def _precision_table(ledger: Ledger) -> Grid:
    kinds = (
        "float32 logits",
        "bfloat16 model, float32 router",
        "bfloat16 logits",
        "bfloat16 probabilities",
    )

    def percent(number: str) -> str:
        mean, error = mean_and_error(ledger.select(number, part="precision"))
        return f"{100 * mean:.2f} ± {100 * error:.2f}"

    return Grid(
        caption="Tokens, in percent, that see other experts than in float32, and that have a tie at the cut",
        header=("chosen by", "other experts", "tie"),
        rows=tuple((kind, percent(f"differ {kind}"), percent(f"tie {kind}")) for kind in kinds),
        notes=("4096 random tokens, hidden 256, 8 of 64 experts; a tie goes to the lower index.",),
        origin=ledger.origin,
    )


def _curve(ledger: Ledger, **settings: object) -> tuple[list[int], list[float]]:
    """Steps and mean validation losses of the runs with these settings."""
    runs = [
        numbers
        for done, numbers in ledger.runs
        if done["part"] == "text" and all(done[key] == value for key, value in settings.items())
    ]
    names = [name for name in (runs[0] if runs else {}) if name.startswith("validation")]
    return [int(name.split()[1]) for name in names], [mean_and_error([r[n] for r in runs])[0] for n in names]


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
    for axis, balance in zip(axes, (False, True), strict=False):
        for name in ROUTERS:
            axis.plot(*_curve(ledger, router=name, k=1, balance=balance), label=name, linewidth=1.2)
        for name, style in zip(DENSE, (":", "-.", "--"), strict=True):
            axis.plot(*_curve(ledger, router=name), label=name, color="0.5", linestyle=style)
        axis.set(
            title=f"top-1, {'with' if balance else 'without'} balance loss",
            xlabel="step",
            ylabel="validation loss, nats a character",
        )
    for offset, balance in ((-0.2, False), (0.2, True)):
        found = [
            mean_and_error(ledger.select("entropy", part="text", router=name, k=1, balance=balance) or [0.0])
            for name in ROUTERS
        ]
        places = [place + offset for place in range(len(ROUTERS))]
        label = "balanced" if balance else "not balanced"
        axes[2].barh(places, [f[0] for f in found], 0.36, xerr=[f[1] for f in found], label=label)
    axes[2].set_yticks(range(len(ROUTERS)), list(ROUTERS))
    axes[2].invert_yaxis()
    axes[2].set(title="top-1: usage of experts", xlabel="entropy, 1 is even")
    axes[2].legend(fontsize="small")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="moe",
    title="mixtures of experts: routers that learn, collapse and balance",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib", "transformers", "scikit-learn"),
)
