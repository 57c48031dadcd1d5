"""Top-k cross entropy beside cross entropy, after Petersen, Kuehne, Borgelt & Deussen (2022).

Their question, whether a loss that asks for the label among the k largest logits gives better top-k accuracy,
on data that two cores can train in minutes: pairs of handwritten digits (scikit-learn's 8×8 digits, two side
by side, 100 classes), few and noisy enough that the fifth guess matters. The digits of the test pairs are in
no training pair.
"""

# pyright: basic
from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from khot.compare.report.grid import Grid
from khot.losses import fenchel_young_loss, topk_cross_entropy
from khot_bench.reproduce.ledger import Ledger, Settings, mean_and_error
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

_Loss = Callable[[Tensor, Tensor], Tensor]

_LOSSES: dict[str, _Loss] = {
    "cross entropy": nn.functional.cross_entropy,
    "top-5 cross entropy": lambda x, target: topk_cross_entropy(x, target, 5),
    "half top-1, half top-5": lambda x, target: topk_cross_entropy(x, target, [0.5, 0, 0, 0, 0.5]),
    "half top-1, half top-5, laplace": lambda x, target: topk_cross_entropy(
        x, target, [0.5, 0, 0, 0, 0.5], method="laplace"
    ),
    "Fenchel–Young, sigmoid, k = 1": lambda x, target: fenchel_young_loss(
        x, nn.functional.one_hot(target, x.shape[-1]).to(x.dtype)
    ),
}
_SEEDS = 5
_NOISE = 0.5


def _runs(quick: bool) -> Sequence[Settings]:
    seeds, epochs, pairs = (1, 2, 500) if quick else (_SEEDS, 40, 4000)
    return [
        {"loss": loss, "seed": seed, "epochs": epochs, "pairs": pairs}
        for seed in range(seeds)
        for loss in _LOSSES
    ]


def _pairs(seed: int, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training pairs and 5000 test pairs: images (…, 128) and classes 10a + b."""
    from sklearn.datasets import load_digits

    generator = torch.Generator().manual_seed(seed)
    digits: Any = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=generator)

    def draw(members: Tensor, number: int) -> tuple[Tensor, Tensor]:
        chosen = members[torch.randint(len(members), (number, 2), generator=generator)]
        both = images[chosen].flatten(1)
        noise = _NOISE * torch.randn(both.shape, generator=generator)
        return both + noise, 10 * labels[chosen[:, 0]] + labels[chosen[:, 1]]

    return *draw(order[:1200], count), *draw(order[1200:], 5000)


def _run(settings: Settings) -> dict[str, float]:
    seed: int = settings["seed"]
    x, target, test_x, test_target = _pairs(seed, settings["pairs"])
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(128, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 100)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    batch = 100
    steps = settings["epochs"] * (len(x) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    loss_of = _LOSSES[settings["loss"]]
    for _ in range(settings["epochs"]):
        for rows in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            loss_of(model(x[rows]), target[rows]).backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        best = model(test_x).topk(10).indices == test_target.unsqueeze(-1)
    return {f"top-{k}": best[:, :k].any(-1).double().mean().item() for k in (1, 2, 5, 10)}


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    columns = ("top-1", "top-2", "top-5", "top-10")
    rows: list[tuple[str, ...]] = []
    for loss in _LOSSES:
        cells: list[str] = []
        for column in columns:
            ours, base = ledger.select(column, loss=loss), ledger.select(column, loss="cross entropy")
            mean, _ = mean_and_error(ours)
            text = f"{100 * mean:.1f}"
            if loss != "cross entropy":
                gain, error = mean_and_error([a - b for a, b in zip(ours, base, strict=True)])
                text += f" ({100 * gain:+.1f} ± {100 * error:.1f})"
            cells.append(text)
        rows.append((loss, *cells))
    seeds = len(ledger.select("top-1", loss="cross entropy"))
    return (
        Grid(
            caption="Accuracy on pairs of digits (100 classes), in percent",
            header=("loss", *columns),
            rows=tuple(rows),
            notes=(
                f"Mean over {seeds} seeds; in brackets the difference to cross entropy at the same seed, "
                "mean ± standard error.",
            ),
            origin=ledger.origin,
        ),
    )


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    columns = ("top-1", "top-2", "top-5", "top-10")
    losses = [loss for loss in _LOSSES if loss != "cross entropy"]
    for i, loss in enumerate(losses):
        gains = []
        for column in columns:
            pairs = zip(
                ledger.select(column, loss=loss), ledger.select(column, loss="cross entropy"), strict=True
            )
            gains.append(mean_and_error([100 * (a - b) for a, b in pairs]))
        places = [place + 0.18 * (i - (len(losses) - 1) / 2) for place in range(len(columns))]
        means, errors = zip(*gains, strict=True)
        axes.errorbar(places, means, errors, fmt="o", capsize=3, label=loss)
    axes.axhline(0, color="0.6", linewidth=1)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_ylabel("accuracy − cross entropy's, %")
    axes.legend(fontsize="small")
    figure.savefig(path)
    plt.close(figure)


REPRODUCTION = Reproduction(
    name="petersen2022",
    title="top-k cross entropy beside cross entropy, on pairs of digits",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("scikit-learn", "matplotlib"),
)
