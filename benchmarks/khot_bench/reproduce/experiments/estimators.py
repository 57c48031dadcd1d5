"""Gradient estimators of a sampled subset: bias and variance, and what they are worth in training.

The toy of Ahmed et al. (2023), SIMPLE: n = 10, k = 5 and f(x) = ‖x − b‖², which on zeros and ones equals an
affine function, though not in its gradient; beside it a loss that does not. Each estimator is compared with
the exact gradient of the design that it samples from.

An autoencoder with a code of 10 of 40 units, on MNIST at 14 × 14 pixels, in its spirit: trained on the
reconstruction alone with every estimator, and with the divergence from the uniform prior where the design has
an entropy in closed form.
"""

# pyright: basic
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from khot.compare.report.grid import Grid
from khot.estimators import Estimator, diagnose, get
from khot.vision.data import ImageTensors, load
from khot_bench.reproduce.ledger import Ledger, Settings, mean_and_error
from khot_bench.reproduce.run import Reproduction
from khot_bench.reproduce.subset_autoencoder import WITH_ENTROPY, Task, train

__all__ = ["REPRODUCTION"]

_CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "straight-through, tree pivotal": ("sampled_straight_through", {"design": "tree_pivotal"}),
    "straight-through, random tree pivotal": ("sampled_straight_through", {"design": "random_tree_pivotal"}),
    "SIMPLE": ("simple", {}),
    "reinmax": ("reinmax", {}),
    "reinmax, tree pivotal": ("reinmax", {"design": "tree_pivotal"}),
    "score function": ("score_function", {}),
    "I-MLE, λ = 1": ("imle", {"step": 1.0}),
    "I-MLE, λ = 10": ("imle", {"step": 10.0}),
    "adaptive I-MLE": ("adaptive_imle", {}),
    "relaxed subset": ("relaxed_subset", {}),
    "relaxed subset, capped": ("relaxed_subset", {"capped": True}),
    "Gumbel straight-through": ("gumbel_straight_through", {}),
}
_ONLY_TOY = ("reinmax, tree pivotal", "I-MLE, λ = 1", "relaxed subset")
_LOSSES = ("squared distance", "not linear")
_UNITS, _CHOSEN = 10, 5
_SAMPLES = 4


def _chosen(label: str) -> Estimator:
    name, options = _CHOICES[label]
    return get(name, **options)


def _runs(quick: bool) -> Sequence[Settings]:
    toy_seeds, repeats = (1, 200) if quick else (5, 2000)
    seeds, steps, data = (1, 20, "digits") if quick else (3, 400, "mnist")
    runs: list[Settings] = [
        {"part": "toy", "loss": loss, "seed": seed, "repeats": repeats}
        for loss in _LOSSES
        for seed in range(toy_seeds)
    ]
    trained = [label for label in _CHOICES if label not in _ONLY_TOY]
    for seed in range(seeds):
        for label in trained:
            of = {"part": "autoencoder", "estimator": label, "seed": seed, "steps": steps, "data": data}
            closed = _chosen(label).design in WITH_ENTROPY
            runs += [{**of, "divergence": divergence} for divergence in (False, True)[: 1 + closed]]
    return runs


def _run(settings: Settings) -> dict[str, float]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # steps are small: a second thread does not pay
    try:
        return _toy(settings) if settings["part"] == "toy" else _autoencoder(settings)
    finally:
        torch.set_num_threads(threads)


def _toy(settings: Settings) -> dict[str, float]:
    generator = torch.Generator().manual_seed(settings["seed"])
    scores = torch.randn(_UNITS, dtype=torch.float64, generator=generator)
    found = diagnose(
        _loss(settings["loss"], generator),
        scores,
        _CHOSEN,
        estimators={label: _chosen(label) for label in _CHOICES},
        samples=_SAMPLES,
        repeats=settings["repeats"],
        generator=generator,
    )
    return {
        f"{number} {row.estimator}": getattr(row, number)
        for row in found.rows
        for number in ("bias", "noise", "variance", "cosine", "cosine_each")
    }


def _loss(name: str, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    b = torch.randn(_UNITS, dtype=torch.float64, generator=generator).abs()
    a = torch.randn(_UNITS, _UNITS, dtype=torch.float64, generator=generator)
    if name == "squared distance":
        return lambda x: ((x - b) ** 2).sum(-1)
    return lambda x: torch.tanh(x @ a).sum(-1) + 0.3 * ((x @ a) ** 2).mean(-1)


def _autoencoder(settings: Settings) -> dict[str, float]:
    task = Task(
        units=40, chosen=10, hidden=200, batch=100, steps=settings["steps"], divergence=settings["divergence"]
    )
    images, test = _images(settings["data"])
    return train(_chosen(settings["estimator"]), task, images, test, settings["seed"])


@functools.lru_cache(maxsize=1)
def _images(name: str) -> tuple[Tensor, Tensor]:
    """Binary pixels (N, pixels) of training and test images; large images are halved."""
    halves: list[Tensor] = []
    for is_train in (True, False):
        data = load(name, is_train)
        assert isinstance(data, ImageTensors)
        images = data.images.float() / (255 if data.images.dtype == torch.uint8 else 1)
        if images.shape[-1] > 14:
            images = torch.nn.functional.avg_pool2d(images, 2)
        halves.append((images.flatten(1) > 0.5).float())
    return halves[0], halves[1][:2000]


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    return (*(_toy_table(ledger, loss) for loss in _LOSSES), _autoencoder_table(ledger))


def _toy_table(ledger: Ledger, loss: str) -> Grid:
    def text(number: str, label: str) -> str:
        mean, error = mean_and_error(ledger.select(f"{number} {label}", part="toy", loss=loss))
        return f"{mean:.3f} ± {error:.3f}" if "cosine" in number else f"{mean:.2g} ± {error:.1g}"

    numbers = ("bias", "noise", "variance", "cosine", "cosine_each")
    formula = "‖x − b‖²" if loss == "squared distance" else "Σ tanh(xA) + 0.3 ‖xA‖²/n"
    seeds = len(ledger.select("bias SIMPLE", part="toy", loss=loss))
    return Grid(
        caption=f"f(x) = {formula}, n = {_UNITS}, k = {_CHOSEN}",
        header=(
            "estimator",
            "bias",
            "standard error of bias",
            "variance",
            "cosine",
            "cosine of one estimate",
        ),
        rows=tuple((label, *(text(number, label) for number in numbers)) for label in _CHOICES),
        notes=(
            "In units of the length of the exact gradient of the estimator's own design; an estimate is the "
            f"mean of {_SAMPLES} samples. Mean ± standard error over {seeds} seeds of scores and f. A bias "
            "below its standard error may be none.",
        ),
        origin=ledger.origin,
    )


def _autoencoder_table(ledger: Ledger) -> Grid:
    rows: list[tuple[str, ...]] = []
    for label in _CHOICES:
        for divergence in (False, True):
            of = {"part": "autoencoder", "estimator": label, "divergence": divergence}
            if not ledger.select("sampled", **of):
                continue
            bound = "–"
            if divergence:
                pairs = zip(ledger.select("sampled", **of), ledger.select("divergence", **of), strict=True)
                bound = _mean_text([a + b for a, b in pairs])
            rows.append(
                (
                    label,
                    "yes" if divergence else "no",
                    _mean_text(ledger.select("sampled", **of)),
                    _mean_text(ledger.select("largest", **of)),
                    bound,
                )
            )
    done = [settings for settings, _ in ledger.runs if settings["part"] == "autoencoder"]
    data = ", ".join(dict.fromkeys(str(settings["data"]) for settings in done))
    seeds = len({settings["seed"] for settings in done})
    steps = max((settings["steps"] for settings in done), default=0)
    return Grid(
        caption=f"Autoencoder with a code of 10 of 40 units, {data}: test loss in nats",
        header=("estimator", "trained with divergence", "sampled code", "k largest", "negative ELBO"),
        rows=tuple(rows),
        notes=(
            f"Mean ± standard error over {seeds} seeds, {steps} steps of 100 images, one sample a step (4 "
            "for the score function). Divergence: from the uniform prior, log C(40, 10) = 20.6 minus the "
            "entropy of the code, where that has a closed form. Without it the code may become "
            "deterministic, and the negative ELBO is at most 20.6 above the reconstruction. A relaxed subset "
            "is tested with a Gumbel top-k sample.",
        ),
        origin=ledger.origin,
    )


def _mean_text(values: Sequence[float]) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:.2f} ± {error:.2f}"


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", sharey=True)
    labels = list(_CHOICES)
    for axis, loss in zip(axes, _LOSSES, strict=False):
        for number, marker, name in (("bias", "o", "bias"), ("variance", "d", "standard deviation")):
            means, errors = [], []
            for label in labels:
                values = ledger.select(f"{number} {label}", part="toy", loss=loss)
                if number == "variance":
                    values = [value**0.5 for value in values]
                mean, error = mean_and_error(values)
                means.append(mean)
                errors.append(error)
            axis.errorbar(means, range(len(labels)), xerr=errors, fmt=marker, capsize=2, label=name)
        noise = [
            mean_and_error(ledger.select(f"noise {label}", part="toy", loss=loss))[0] for label in labels
        ]
        axis.barh(
            range(len(labels)), noise, height=0.9, color="0.9", zorder=0, label="standard error of bias"
        )
        axis.set_xscale("symlog", linthresh=0.01)
        axis.set_xlim(0, None)
        axis.set_xlabel("in units of the exact gradient")
        axis.set_title(f"f: {loss}", fontsize="medium")
    for divergence, marker in ((False, "o"), (True, "s")):
        places, means, errors = [], [], []
        for place, label in enumerate(labels):
            values = ledger.select("sampled", part="autoencoder", estimator=label, divergence=divergence)
            if values:
                mean, error = mean_and_error(values)
                places.append(place)
                means.append(mean)
                errors.append(error)
        name = "with divergence" if divergence else "reconstruction alone"
        colour = "C3" if divergence else "C2"
        axes[2].errorbar(means, places, xerr=errors, fmt=marker, color=colour, capsize=2, label=name)
    axes[2].set_title("autoencoder", fontsize="medium")
    axes[2].set_xlabel("reconstruction of test images, nats")
    shown = [
        entry for axis in (axes[0], axes[2]) for entry in zip(*axis.get_legend_handles_labels(), strict=True)
    ]
    figure.legend(*zip(*shown, strict=True), loc="outside lower center", ncols=len(shown), fontsize="small")
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].invert_yaxis()
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="estimators",
    title="bias and variance of gradient estimators, and an autoencoder with a k-hot code",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib",),
)
