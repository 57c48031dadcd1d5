"""``khot demo``: hard and soft top-k side by side, then a selection that only the soft one can learn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

import khot

__all__ = ["app", "fit_planted_features", "main"]

app = typer.Typer(add_completion=False)

_SCORES = [2.0, 1.4, 1.1, 0.9, 0.2, -0.5, -0.8, -1.6]
_K = 3
_BAR = 8
_SEEDS = 3


def main(arguments: Sequence[str]) -> None:
    """The command."""
    app(args=list(arguments), prog_name="khot demo")


@app.command()
def demo() -> None:
    """See a differentiable top-k at work, in a few seconds."""
    console = Console()
    console.print(f"[bold]khot {khot.__version__}[/bold]: differentiable top-k\n")
    _compare(console)
    _learn(console)
    console.print(
        "Next: `khot compare` for your n and k, `khot explore` to play, README.md for ten lines that train."
    )


def _compare(console: Console) -> None:
    """The weights of eight scores at several temperatures, and what their gradient sees."""
    columns = [("hard", khot.hard_topk(torch.tensor(_SCORES), _K))]
    reached: list[str] = ["0"]
    for temperature in (0.1, 0.5, 2.0):
        scores = torch.tensor(_SCORES, requires_grad=True)
        weights = khot.sigmoid_topk(scores, _K, temperature=temperature)
        (gradient,) = torch.autograd.grad(weights[_K], scores)  # of the first one that misses the cut
        columns.append((f"τ = {temperature}", weights.detach()))
        reached.append(f"{int((gradient.abs() > 1e-3 * gradient.abs().max()).sum())}")
    table = Table(
        title=f"Keep {_K} of {len(_SCORES)}: sigmoid_topk(x, {_K}, temperature=τ); each column sums to {_K}",
        box=box.SIMPLE,
    )
    table.add_column("score", justify="right")
    for name, _ in columns:
        table.add_column(name)
    for i, score in enumerate(_SCORES):
        table.add_row(f"{score:+.1f}", *(_bar(float(weights[i])) for _, weights in columns))
    table.add_section()
    table.add_row("learn", *(f"{count} scores" for count in reached))
    console.print(table)
    console.print(
        f"The last row counts the scores that get a gradient from the weight of {_SCORES[_K]:+.1f}, just "
        "below the cut. With a hard top-k there are none.\n"
    )


def _learn(console: Console) -> None:
    """Find 5 planted features of 50 by gradient descent on their scores."""
    console.print(
        f"Five of fifty features matter. Gradient descent on the scores finds (mean of {_SEEDS} runs):"
    )
    for gate in ("hard_topk", "sigmoid_topk(hard=True)", "sigmoid_topk"):
        runs = [fit_planted_features(gate, seed) for seed in range(_SEEDS)]
        found = sum(hits for hits, _ in runs) / len(runs)
        loss = sum(final for _, final in runs) / len(runs)
        dots = "█" * round(found) + "░" * (5 - round(found))
        console.print(f"  {gate:<24} [cyan]{dots}[/cyan] {found:.1f} of 5, loss {loss:.3f}", highlight=False)
    console.print("hard_topk sends no gradient to the scores, so it keeps the features it started with.\n")


def fit_planted_features(gate: str, seed: int, steps: int = 300) -> tuple[int, float]:
    """Train a gated linear model; return how many of the 5 planted features it found, and its loss."""
    generator = torch.Generator().manual_seed(seed)
    data = torch.randn(256, 50, generator=generator)
    planted = torch.randperm(50, generator=generator)[:5]
    target = data[:, planted].sum(-1)
    scores = (0.01 * torch.randn(50, generator=generator)).requires_grad_()
    slope = torch.full((50,), 0.1, requires_grad=True)
    optimizer = torch.optim.Adam([scores, slope], lr=0.05)
    loss = torch.zeros(())
    for _ in range(steps):
        loss = (data @ (_gate(gate, scores) * slope) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    found = khot.hard_topk(scores, 5)[planted].sum()
    return int(found), float(loss.detach())


def _gate(name: str, scores: Tensor) -> Tensor:
    if name == "hard_topk":
        return khot.hard_topk(scores, 5)
    return khot.sigmoid_topk(scores, 5, temperature=0.1, hard=name.endswith("(hard=True)"))


def _bar(weight: float) -> str:
    filled = round(weight * _BAR)
    return f"[cyan]{'█' * filled}[/cyan][dim]{'░' * (_BAR - filled)}[/dim] {weight:.3f}"
