"""Rows and budgets that are hard for a solver of thresholds."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

N, ROWS = 12, 3200


def kinds(generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    def uniform(n: int = N) -> Tensor:
        return torch.rand(ROWS, n, generator=generator, dtype=torch.float64)

    normal = torch.randn(ROWS, N, generator=generator, dtype=torch.float64)
    for scale in (1e-3, 1.0, 30.0, 1e3, 1e5):
        yield f"gaussian × {scale:g}", scale * normal
    yield "cauchy", torch.tan(math.pi * (uniform() - 0.5))
    yield "levels with gaps", (4 * uniform()).floor() * 10 ** (4 * uniform(1) - 1)
    yield "two levels", (uniform() < uniform(1)) * 200 * uniform(1)
    yield "magnitudes mixed", normal * 10 ** (8 * uniform() - 3)
    yield "exponential gaps", -torch.exp(12 * uniform())
    yield "two ties above a crowd", -torch.cat([0 * uniform(2), (300 * uniform(1)).expand(ROWS, N - 2)], -1)


def budgets(generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    def uniform() -> Tensor:
        return torch.rand(ROWS, 1, generator=generator, dtype=torch.float64)

    yield "integer", (1 + (N - 1) * uniform()).floor()
    yield "real", N * uniform()
    distance = 10 ** (-14 + 11 * uniform()) * torch.where(uniform() < 0.5, -1, 1)
    yield "nearly integer", ((N + 1) * uniform()).floor() + distance


def problems(dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for kind, x in kinds(generator):
        for budget, k in budgets(generator):
            k = k.to(dtype)
            yield f"{kind}, {budget}", x.to(dtype), torch.where((k > 1e-7) & (k < N), k, 0.5)
