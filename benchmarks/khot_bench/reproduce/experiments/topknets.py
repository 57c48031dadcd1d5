"""The networks of the topknets project beside a plain vision transformer of equal size.

The project names two networks that select k tokens, and an ImageNet table without numbers. Here the three
are trained alike on data that one core can train on in minutes: scikit-learn's digits, MNIST, and pairs of
digits with 100 classes, for with ten a label among the best five says little. Nothing is claimed of ImageNet.
"""

# pyright: basic
from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from khot.compare.cost.timing import Timing, compare
from khot.compare.report.grid import Grid, seconds_text
from khot.vision import NetworkConfig, count_flops, from_config
from khot.vision.data import load
from khot.vision.training import RunConfig, TrainSettings, train
from khot_bench.reproduce.ledger import Ledger, Settings, mean_and_error
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION", "operations"]

_MODELS = {
    "vit": "plain transformer",
    "topk_attention": "TopKAttentionModel",
    "topk_dynamic": "TopKDynamicModel",
}
# Sixteen patches in each, of which four are selected.
_DATA: dict[str, dict[str, Any]] = {
    "digits": {"image_size": (8, 8), "patch_size": (2, 2), "classes": 10},
    "digit-pairs": {"image_size": (8, 16), "patch_size": (4, 2), "classes": 100},
    "mnist": {"image_size": (28, 28), "patch_size": (7, 7), "classes": 10},
}
_TRAINING = {"digits": (3, 40), "mnist": (3, 2), "digit-pairs": (3, 48)}  # seeds, epochs
_NETWORK = {"channels": 1, "width": 48, "depth": 3, "heads": 4, "k": 4}
_BATCH = 64


def _runs(quick: bool) -> Sequence[Settings]:
    data = {"digits": (1, 1)} if quick else _TRAINING
    training = [
        {"part": "training", "data": name, "model": model, "seed": seed, "epochs": epochs}
        for name, (seeds, epochs) in data.items()
        for seed in range(seeds)
        for model in _MODELS
    ]
    return [*training, *({"part": "cost", "data": name} for name in data)]


def _run(settings: Settings) -> dict[str, float]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _cost(settings["data"]) if settings["part"] == "cost" else _train(settings)
    finally:
        torch.set_num_threads(threads)


def _config(data: str, model: str) -> NetworkConfig:
    return NetworkConfig.from_dict({"model": model, **_NETWORK, **_DATA[data]})


def _train(settings: Settings) -> dict[str, float]:
    name, epochs = settings["data"], settings["epochs"]
    config = RunConfig(
        _config(name, settings["model"]),
        TrainSettings(
            data=name,
            epochs=epochs,
            batch_size=_BATCH,
            learning_rate=3e-3,
            warmup_epochs=epochs / 20,
            seed=settings["seed"],
        ),
    )
    data = load(name), load(name, train=False)
    with tempfile.TemporaryDirectory(prefix="khot-topknets-") as folder:
        results = train(config, folder, data=data)
    return {"top-1": results["top1"], "top-5": results["top5"], "parameters": results["parameters"]}


def operations(model: str, data: str) -> float:
    """Of one image forward, multiplications and additions of matrix products; the selection not counted."""
    return count_flops(from_config(_config(data, model)).eval(), _images(data, 1))


def _images(data: str, count: int) -> torch.Tensor:
    height, width = _DATA[data]["image_size"]
    return torch.rand(count, 1, height, width, generator=torch.Generator().manual_seed(0))


def _cost(data: str) -> dict[str, float]:
    """Of one image: operations, and processor time in a batch."""
    images = _images(data, _BATCH)
    networks = {model: from_config(_config(data, model)).eval() for model in _MODELS}
    calls = {model: partial(network, images) for model, network in networks.items()}
    with torch.no_grad():
        timings = compare(calls["vit"], calls, clock=time.thread_time, waited=lambda: 0.0)
    numbers = {f"{model} flop": operations(model, data) for model in _MODELS}
    for model, timing in timings.items():
        assert isinstance(timing, Timing)
        numbers[f"{model} seconds"] = timing.seconds_min / _BATCH
    return numbers


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    rows: list[tuple[str, ...]] = []
    for data in _DATA:
        cost = next((n for done, n in ledger.runs if done["part"] == "cost" and done["data"] == data), None)
        for model, shown in _MODELS.items():
            which = _longest(ledger, data, model)
            done = ledger.select("top-1", **which)
            if not done or cost is None:
                continue
            top5 = mean_and_error(ledger.select("top-5", **which))[0]
            rows.append(
                (
                    data,
                    shown,
                    _percent(done),
                    f"{100 * top5:.1f}",
                    f"{ledger.select('parameters', **which)[0]:.0f}",
                    f"{cost[f'{model} flop'] / 1e6:.2f}",
                    seconds_text(cost[f"{model} seconds"]),
                )
            )
    return (
        Grid(
            caption="Three networks of equal size, trained alike",
            header=("data", "network", "top-1, %", "top-5, %", "parameters", "MFLOP", "time an image"),
            rows=tuple(rows),
            notes=(
                _training_note(ledger),
                "With ten classes top-5 is easy: it says something for the pairs, which have 100 classes. "
                "No network was trained on ImageNet.",
                "MFLOP: one image forward, multiplications and additions of matrix products, the selection "
                "itself not counted. "
                f"Time: processor time of one thread, forward, batches of {_BATCH}, the shortest.",
            ),
            origin=ledger.origin,
            text_columns=2,
        ),
    )


def _longest(ledger: Ledger, data: str, model: str) -> Settings:
    """What selects a network's runs of the most epochs: those of a shorter plan are not mixed in."""
    which = {"part": "training", "data": data, "model": model}
    epochs = [done["epochs"] for done, _ in ledger.runs if which.items() <= done.items()]
    return {**which, "epochs": max(epochs, default=0)}


def _percent(values: Sequence[float]) -> str:
    mean, error = mean_and_error(values)
    return f"{100 * mean:.1f} ± {100 * error:.1f}" if len(values) > 1 else f"{100 * mean:.1f}"


def _training_note(ledger: Ledger) -> str:
    parts = [
        f"{data}: {_counted(len(seeds), 'seed')}, {_counted(max(epochs), 'epoch')}"
        for data in _DATA
        if (seeds := ledger.select("top-1", **_longest(ledger, data, "vit")))
        and (
            epochs := {done["epochs"] for done, _ in ledger.runs if done["data"] == data and "epochs" in done}
        )
    ]
    return (
        f"{'; '.join(parts)}. With several seeds the mean ± its standard error; a difference between single "
        "seeds may be chance."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    shown = [data for data in _DATA if ledger.select("top-1", part="training", data=data)]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(3.2 * len(shown), 3), layout="constrained", squeeze=False
    )
    for axis, data in zip(axes[0], shown, strict=True):
        for place, model in enumerate(_MODELS):
            values = ledger.select("top-1", **_longest(ledger, data, model))
            axis.plot([place] * len(values), [100 * value for value in values], "o", alpha=0.7)
        axis.set_xticks(range(len(_MODELS)), ["plain", "attention", "dynamic"])
        axis.margins(x=0.2)
        axis.set(title=data, ylabel="top-1 accuracy, %")
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="topknets",
    title="networks that select k tokens beside a plain transformer of equal size",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib", "scikit-learn", "safetensors"),
)
