"""Every operator, design, estimator and loss of khot as a call without arguments, with all that it gives.

A call makes its own inputs from a fixed seed and returns tensors: results, and gradients where there are any.
So two calls of one name must agree to the last bit, wherever and however often they run.
"""

from collections.abc import Callable

import torch
from torch import Tensor

import khot
from khot import designs, estimators, losses
from khot.relaxations import registry
from strategies.design_examples import by_scores

Call = Callable[[], tuple[Tensor, ...]]
#: Rows × n is above what kernels share between threads, and k is small for those that take k steps.
ROWS, N, K = 96, 90, 5
KERNELS = {
    "bfloat16",
    "hard_topk",
    "laplace_topk",
    "masked",
    "normal_topk",
    "sigmoid_topk",
    "smallest",
    "soft_rank",
    "soft_rank_topk",
    "straight-through",
    "topk_entries",
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def leaf(rows: int, n: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(rows, n, generator=seeded(seed))).requires_grad_()


def with_gradient(y: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """A result and its product with fixed weights, by the backward pass; without a graph the result alone."""
    if not y.requires_grad:
        return (y,)
    cotangent = torch.randn(y.shape, generator=seeded(7), dtype=y.dtype)
    return y.detach(), *torch.autograd.grad(y, x, cotangent)


def of_relaxation(spec: registry.Relaxation, options: dict, rows: int, n: int, scale: float) -> Call:
    def call() -> tuple[Tensor, ...]:
        x = leaf(rows, n, scale=scale)
        noise = {"generator": seeded(3)} if spec.stochastic else {}
        return with_gradient(spec.weights(x, K, **options, **noise), x)

    return call


def of_design(design: type[designs.KHotDistribution], rows: int, n: int) -> Call:
    def call() -> tuple[Tensor, ...]:
        x = leaf(rows, n)
        drawn = by_scores(design, K, x.detach()).sample((2,), generator=seeded(4))
        few = x[:8]  # some take cubic time for the gradient
        try:
            return drawn, *with_gradient(by_scores(design, K, few).log_prob(drawn[:, :8]), x)
        except NotImplementedError:
            return (drawn,)

    return call


def of_estimator(name: str, rows: int, n: int) -> Call:
    def call() -> tuple[Tensor, ...]:
        x, estimator = leaf(rows, n), estimators.get(name)
        drawn = estimator(x, K, generator=seeded(5))
        return (drawn.detach(),) if estimator.needs_losses else with_gradient(drawn, x)

    return call


def of_function(function: Callable[[Tensor], Tensor], rows: int, n: int, scale: float = 1.0) -> Call:
    def call() -> tuple[Tensor, ...]:
        x = leaf(rows, n, scale=scale)
        return with_gradient(function(x), x)

    return call


def relaxations(rows: int = ROWS, n: int = N, scale: float = 1.0) -> dict[str, Call]:
    """Each operator with each of its options."""
    return {
        f"{name}_topk {dict(options) or ''}".strip(): of_relaxation(spec, dict(options), rows, n, scale)
        for name, spec in registry.specs().items()
        for options in ({}, *spec.example_options)
    }


def functions(rows: int = ROWS, n: int = N, scale: float = 1.0) -> dict[str, Call]:
    """What is built on operators, or beside them, with kernels of its own."""
    target = torch.zeros(rows, n).index_fill(-1, torch.arange(K), 1.0)
    values = torch.randn(n, 3, generator=seeded(8))
    found: dict[str, Callable[[Tensor], Tensor]] = {
        "hard_topk": lambda x: khot.hard_topk(x, K),
        "straight-through": lambda x: khot.topk(x, K, hard=True),
        "masked": lambda x: khot.sigmoid_topk(x, K, mask=target == 0),
        "smallest": lambda x: khot.sigmoid_topk(x, K, largest=False),
        "bfloat16": lambda x: khot.sigmoid_topk(x.bfloat16(), K).float(),
        "topk_entries": lambda x: khot.topk_entries(x, K).weights,
        "topk_entries of softsort": lambda x: khot.topk_entries(x, K, "softsort").weights,
        "soft_rank": khot.soft_rank,
        "soft_rank kl": lambda x: khot.soft_rank(x, regularization="kl"),
        "soft_sort": khot.soft_sort,
        "soft_median": khot.soft_median,
        "topk_values": lambda x: khot.topk_values(x, K),
        "select": lambda x: khot.select(values, x, K).values,
        "fenchel_young_loss": lambda x: losses.fenchel_young_loss(x, target),
        "recall_loss": lambda x: losses.recall_loss(x, target, K),
        "ndcg_loss": lambda x: losses.ndcg_loss(x, target),
        "spearman_loss": lambda x: losses.spearman_loss(x, values[:, 0].expand(rows, n)),
        "topk_cross_entropy": lambda x: losses.topk_cross_entropy(x, torch.arange(rows) % n),
    }
    return {name: of_function(function, rows, n, scale) for name, function in found.items()}


def every_call(rows: int = ROWS, n: int = N) -> dict[str, Call]:
    return {
        **relaxations(rows, n),
        **functions(rows, n),
        **{f"design {name}": of_design(designs.get(name), rows, n) for name in designs.names()},
        **{f"estimator {name}": of_estimator(name, rows, n) for name in estimators.names()},
    }


def by_kernels(name: str) -> bool:
    """Whether all of a call is computed by kernels, whose bits do not depend on the number of threads.

    torch's own operations may: they take the ends of each thread's part one by one, the rest in vectors.
    """
    return name in KERNELS or name.startswith("sparse_topk")


def differing(
    first: dict[str, tuple[Tensor, ...]], second: dict[str, tuple[Tensor, ...]], *, same_threads: bool = False
) -> list[str]:
    """The names whose tensors differ.

    In a bit (a zero from a minus zero too) if kernels make them, for samples of designs, and for all if the
    number of threads was the same; else by more than rounding.
    """
    found = []
    for name, tensors in first.items():
        exact = len(tensors) if by_kernels(name) or same_threads else int(name.startswith("design"))
        pairs = list(zip(tensors, second[name], strict=True))
        same = all(same_bits(a, b) for a, b in pairs[:exact])
        if not (same and all(torch.allclose(a, b, atol=1e-5, rtol=1e-4) for a, b in pairs[exact:])):
            found.append(name)
    return found


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes()
