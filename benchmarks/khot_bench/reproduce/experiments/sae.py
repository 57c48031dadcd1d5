"""Sparse autoencoders of a real language model: which way of selecting k latents keeps most of what it
predicts.

SmolLM2-135M after block 9 (d = 576, first positions and attention sinks left out) on State-of-the-Union
addresses, 4608 latents, equal steps and equal L0, judged on addresses that were not seen: FVU, how much of
the cross entropy is recovered, dead latents. Each variant is judged as it is evaluated and, its weights
unchanged, with one threshold for all latents (JumpReLU). Quick: MiniLM on the King James Bible, without a
language model's loss.
"""

# pyright: basic
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from khot.compare.report.grid import Grid
from khot_bench.reproduce.autoencoder_runs import (
    BATCH,
    LATENTS,
    POINTS,
    SEEN,
    VARIANTS,
    judge_principal_components,
    train_variant,
    write_latents_page,
)
from khot_bench.reproduce.ledger import Ledger, Numbers, Settings, mean_and_error
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

STEPS = 490
SHARDS = 4  # of 65 024 tokens of text each: one pass
LONG_STEPS = 3980
LONG_SHARDS = 32  # two million tokens, one pass
FLOOR = "PCA, k components"


def _runs(quick: bool) -> Sequence[Settings]:
    of = {
        "data": "minilm" if quick else "smollm2",
        "shards": 0 if quick else SHARDS,
        "steps": 150 if quick else STEPS,
    }
    main = list(VARIANTS)[:3]
    plan = [(FLOOR, 32, 0), *((name, 32, seed) for seed in range(1 if quick else 3) for name in main)]
    plan += [(name, 32, 0) for name in list(VARIANTS)[3:]]
    if not quick:  # a stopped experiment has whole seeds
        plan += [(name, k, 0) for k in (16, 64) for name in (FLOOR, *main)]
    runs = [{**of, "variant": name, "k": k, "seed": seed} for name, k, seed in plan]
    if not quick:  # the same on more text: does the order stay, and are the curves flat?
        of |= {"shards": LONG_SHARDS, "steps": LONG_STEPS}
        runs += [{**of, "variant": name, "k": 32, "seed": seed} for seed in range(3) for name in main]
    return runs


def _run(settings: Settings) -> Numbers:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return (
            judge_principal_components(settings) if settings["variant"] == FLOOR else train_variant(settings)
        )
    finally:
        torch.set_num_threads(threads)


def _cell(ledger: Ledger, number: str, digits: int, **settings: object) -> str:
    values = [v for s, n in ledger.runs if number in n and s.items() >= settings.items() for v in [n[number]]]
    if not values:
        return ""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    lengths = sorted({s["steps"] for s, _ in ledger.runs}, reverse=True)  # the longest runs first
    groups = [(steps, k) for steps in lengths for k in (32, 16, 64)]
    there = {(s["steps"], s["k"]) for s, _ in ledger.runs}
    return (*(_quality(ledger, *group) for group in groups if group in there), _core(ledger, lengths[0]))


_COLUMNS = (
    ("FVU", "fvu", 4),
    ("CE recovered", "ce_loss_score", 4),
    ("L0", "l0", 1),
    ("FVU, JumpReLU", "fvu JumpReLU", 4),
    ("CE recovered, JumpReLU", "ce_loss_score JumpReLU", 4),
    ("L0, JumpReLU", "l0 JumpReLU", 1),
    ("dead, %", "dead %", 2),
)


def _quality(ledger: Ledger, steps: int, k: int) -> Grid:
    done = [s for s, _ in ledger.runs if s["k"] == k and s["steps"] == steps]
    of = {"steps": steps, "k": k}
    rows = tuple(
        (name, *(_cell(ledger, number, digits, variant=name, **of) for _, number, digits in _COLUMNS))
        for name in (*VARIANTS, FLOOR)
        if any(s["variant"] == name for s in done)
    )
    data = done[0]["data"]
    seeds = {name: len({s["seed"] for s in done if s["variant"] == name}) for name in VARIANTS}
    where = "SmolLM2-135M after block 9" if data == "smollm2" else "MiniLM after block 3"
    return Grid(
        caption=f"Autoencoders of {where}, {LATENTS[data]} latents, k = {k}, {steps} steps, on text that was "
        "not seen",
        header=("trained as", *(title for title, _, _ in _COLUMNS)),
        rows=rows,
        notes=(
            f"{steps} steps of {BATCH} tokens"
            + _cached(done[0])
            + "; seeds: "
            + ", ".join(f"{name} {count}" for name, count in seeds.items() if count)
            + ". With several seeds the mean ± its standard error; a difference between single seeds "
            "may be chance.",
            "TopK and sigmoid top-k are evaluated with k latents a token, BatchTopK with its "
            "threshold. JumpReLU: the same "
            "weights with one threshold for all latents. Thresholds are chosen for L0 = k on other "
            "text that was not seen.",
            f"Dead: not active on {SEEN} training tokens." + _clean_note(ledger),
        ),
        origin=ledger.origin,
    )


def _cached(settings: Settings) -> str:
    shards = settings["shards"]
    return f", of {shards} cached shards of 65 024 tokens of text each" if shards else ""


def _clean_note(ledger: Ledger) -> str:
    clean = [n for _, n in ledger.runs if "ce_loss_without_sae" in n]
    if not clean:
        return ""
    found = clean[0]
    return (
        f" Cross entropy: clean {found['ce_loss_without_sae']:.3f}, mean-ablated "
        f"{found['ce_loss_with_ablation']:.3f} nats; "
        "'CE recovered' is 'ce_loss_score' of SAEBench."
    )


_CORE = (
    "ce_loss_score",
    "ce_loss_with_sae",
    "kl_div_score",
    "kl_div_with_sae",
    "explained_variance",
    "mse",
    "cossim",
    "l2_ratio",
    "relative_reconstruction_bias",
    "l0",
    "l1",
    "freq_over_1_percent",
    "freq_over_10_percent",
    "average_max_decoder_cosine_sim",
    "average_max_encoder_cosine_sim",
)


def _core(ledger: Ledger, steps: int) -> Grid:
    done = {s["variant"] for s, _ in ledger.runs if s["steps"] == steps and s["k"] == 32}
    names = [name for name in VARIANTS if name in done]
    of = {"steps": steps, "k": 32}
    return Grid(
        caption=f"Core metrics of SAEBench, under their names, k = 32, {steps} steps",
        header=("metric", *names),
        rows=tuple(
            (metric, *(_cell(ledger, metric, 4, variant=name, **of) for name in names)) for metric in _CORE
        ),
        notes=("Computed here, on the test text; SAEBench itself was not run.",),
        origin=ledger.origin,
    )


def _curve(ledger: Ledger, number: str, **settings: object) -> tuple[list[float], list[float]]:
    found = [n for s, n in ledger.runs if s.items() >= settings.items() and f"{number} at 0" in n]
    steps = [found[0][f"step at {i}"] for i in range(POINTS)] if found else []
    return steps, [
        sum(n[f"{number} at {i}"] for n in found) / len(found) for i in range(POINTS)
    ] if found else []


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    score = "ce_loss_score" if any("ce_loss_score" in n for _, n in ledger.runs) else "explained_variance"
    short, *longer = sorted({s["steps"] for s, _ in ledger.runs})
    for place, name in enumerate((*VARIANTS, FLOOR)):
        runs = [
            (n["l0"], n[score])
            for s, n in ledger.runs
            if s["variant"] == name and s["steps"] == short and score in n
        ]
        if runs:
            line = {"color": f"C{place}", "label": name, "markersize": 4, "linewidth": 1}
            axes[0].plot(*zip(*sorted(runs), strict=True), "o-", **line)
        for length in longer:
            done = [n for s, n in ledger.runs if s["variant"] == name and s["steps"] == length]
            axes[0].plot([n["l0"] for n in done], [n[score] for n in done], "*", color=f"C{place}")
    axes[0].set(
        title="quality against sparsity", xlabel="L0", ylabel="loss recovered" if "ce" in score else score
    )
    for axis, number, title in ((axes[1], "fvu", "FVU of a batch"), (axes[2], "dead", "dead latents")):
        for place, name in enumerate(VARIANTS):
            for length in (short, *longer):
                steps, values = _curve(ledger, number, variant=name, k=32, steps=length)
                if steps:
                    style = "-" if length == short else "--"
                    axis.plot(steps, values, style, color=f"C{place}", linewidth=1.2)
        axis.set(title=f"{title}, k = 32", xlabel="step")
    axes[1].set_yscale("log")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    figure.savefig(path)
    plt.close(figure)
    if ledger.runs:
        write_latents_page(ledger.runs[0][0]["data"], path.with_name(f"{path.stem}_latents.html"))


REPRODUCTION = Reproduction(
    name="sae",
    title="sparse autoencoders of a real language model: TopK, BatchTopK, sigmoid top-k, JumpReLU",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib", "transformers", "gguf", "accelerate", "safetensors"),
)
