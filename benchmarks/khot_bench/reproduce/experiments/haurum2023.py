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
import functools
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from khot.compare.report.grid import Grid
from khot.schedules import TemperatureScheduler, exponential
from khot.vision import (
    VisionTransformer,
    count_flops,
    load_network,
    preset,
    reduce_tokens,
    save_network,
)
from khot.vision.data import ImageTensors, load
from khot_bench.reproduce.ledger import Ledger, Settings
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
RATES = (0.9, 0.7, 0.5, 0.25)
LOCATIONS = (1, 3, 4)
BATCH, TEST_BATCH = 50, 100
CONFIG = preset("mnist", model="vit", width=32, depth=6, heads=2)

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
    for data in list(DATA)[:1] if quick else DATA:
        cells = [(ALL, 1.0), (ALL_TUNED, 1.0), *((method, rate) for rate in rates for method in METHODS)]
        runs += [{"data": data, "method": method, "keep_rate": rate, **sizes} for method, rate in cells]
    rounds = 5 if quick else 100
    return runs + [
        {"part": "speed", "selection": selection, "keep_rate": rate, "rounds": rounds}
        for rate in rates
        for selection in SPEEDS
    ]


@functools.cache
def _mean_and_deviation(data: str) -> tuple[float, float]:
    pixels = _images(data, True).images.float() / 255
    return pixels.mean().item(), pixels.std().item()


def _batch(data: str, train: bool, rows: Tensor) -> tuple[Tensor, Tensor]:
    images, labels = _images(data, train).batch(rows)
    mean, deviation = _mean_and_deviation(data)
    return (images - mean) / deviation, labels


@functools.cache
def _images(data: str, train: bool) -> ImageTensors:
    found = load(data, train)
    assert isinstance(found, ImageTensors)
    return found


def _base(data: str, images: int) -> VisionTransformer:
    """The network trained with all tokens; kept in the folder for temporary files, to go on after a stop."""
    key = json.dumps([CONFIG.to_dict(), data, images, torch.__version__])
    name = f"khot-haurum2023-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    folder = Path(tempfile.gettempdir()) / name
    if (folder / "model.safetensors").exists():
        found = load_network(folder)
        assert isinstance(found, VisionTransformer)
        return found
    torch.manual_seed(0)
    model = VisionTransformer(CONFIG)
    _train(model, data, images, rate=2e-3, seed=0)
    save_network(model, folder)
    return model


def _train(model: nn.Module, data: str, images: int, rate: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    count, steps = len(_images(data, True)), max(images // BATCH, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1, pct_start=0.1)
    reduced = getattr(model, "token_reduction", None)
    cooling = (
        TemperatureScheduler(reduced, exponential(1.0, 0.1, steps))
        if reduced is not None and reduced.method == "soft"
        else None
    )
    model.train()
    for _ in range(steps):
        x, target = _batch(data, True, torch.randint(count, (BATCH,), generator=generator))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
        schedule.step()
        if cooling is not None:
            cooling.step()


def _run(settings: Settings) -> dict[str, float]:
    torch.set_num_threads(1)
    if settings.get("part") == "speed":
        return _speed(settings)
    method, data = settings["method"], settings["data"]
    model = copy.deepcopy(_base(data, settings["base_images"]))
    tuned, arguments = METHODS.get(method, (method == ALL_TUNED, None))
    reduction = None
    if arguments is not None:
        reduction = reduce_tokens(model, settings["keep_rate"], LOCATIONS, **arguments)
    if tuned:
        _train(model, data, settings["tuning_images"], rate=5e-4, seed=1)
    model.eval()
    numbers = _tested(model, data, settings["test_images"])
    numbers["tokens"] = float(reduction.tokens_per_stage[-1]) if reduction is not None else 49.0
    return numbers


@torch.no_grad()
def _tested(model: nn.Module, data: str, images: int) -> dict[str, float]:
    """Accuracy, and operations for an image."""
    right: list[Tensor] = []
    x = torch.zeros(0)
    for rows in torch.arange(images).split(TEST_BATCH):
        x, target = _batch(data, False, rows)
        right.append(model(x).argmax(-1) == target)
    return {"accuracy": torch.cat(right).double().mean().item(), "flops": count_flops(model, x) / len(x)}


@torch.no_grad()
def _speed(settings: Settings) -> dict[str, float]:
    """Images per second of one core's time, with all tokens and with fewer, in alternating rounds."""
    torch.manual_seed(0)
    full = VisionTransformer(CONFIG).eval()
    reduced = copy.deepcopy(full)
    reduce_tokens(reduced, settings["keep_rate"], LOCATIONS, **SPEEDS[settings["selection"]])
    x = torch.randn(TEST_BATCH, 1, 28, 28)
    seconds: dict[nn.Module, list[float]] = {full: [], reduced: []}
    for _ in range(settings["rounds"]):
        for model, times in seconds.items():
            start = time.thread_time()
            model(x)
            times.append(time.thread_time() - start)
    ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
    return {
        "flops": count_flops(reduced, x) / len(x),
        "images per second": len(x) / statistics.median(seconds[reduced]),
        "images per second, all tokens": len(x) / statistics.median(seconds[full]),
        "speed-up": statistics.median(ratios),
    }


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
    def cell(method: str, rate: float) -> str:
        value = _number(ledger, "accuracy", data=data, method=method, keep_rate=rate)
        return "" if value is None else f"{100 * value:.1f}"

    settings = next(done for done, _ in ledger.runs if done.get("data") == data)
    tests = settings["test_images"]
    full = _number(ledger, "accuracy", data=data, method=ALL) or 0.0
    error = 100 * (full * (1 - full) / tests) ** 0.5
    missing = sum(not cell(method, rate) for method in METHODS for rate in RATES)
    return Grid(
        caption=f"Accuracy on {DATA[data]} in percent, by keep rate",
        header=("method", *(f"{rate:g}" for rate in (1.0, *RATES))),
        rows=tuple(
            (method, *(cell(method, rate) for rate in (1.0, *RATES))) for method in (ALL, ALL_TUNED, *METHODS)
        ),
        notes=(
            f"One seed; {tests} test images, so one standard error is about {error:.1f}. Trained with "
            f"{settings['base_images']} images, fine-tuned with {settings['tuning_images']}.",
            *([f"Blank: {missing} runs that are not done yet."] if missing else []),
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
        origin="Liang et al. (2022), arXiv:2202.07800.",
    )


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    done = [data for data in DATA if ledger.select("accuracy", data=data)]
    figure, axes = plt.subplots(1, len(done) + 1, figsize=(4.2 * (len(done) + 1), 4.4), layout="constrained")
    for axis, data in zip(axes, done, strict=False):
        for number, method in enumerate(METHODS):
            points = sorted(
                (s["keep_rate"], 100 * r["accuracy"])
                for s, r in ledger.runs
                if s.get("data") == data and s["method"] == method
            )
            if not points:
                continue
            style = "--" if "not retrained" in method else "-"
            axis.plot(*zip(*points, strict=True), f"o{style}", color=f"C{number}", label=method, markersize=4)
        for method, colour in ((ALL, "0.6"), (ALL_TUNED, "0.2")):
            level = _number(ledger, "accuracy", data=data, method=method)
            if level is not None:
                axis.axhline(100 * level, color=colour, linewidth=1, linestyle=":", label=method)
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
