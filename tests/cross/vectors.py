"""Prints inputs and right answers for ``kernels.cpp``, which runs the kernels on another processor.

    KHOT_NO_NATIVE=1 python tests/cross/vectors.py >vectors

The answers never come from a kernel: they are those of the portable path in float64, or of a definition that
is written out here. Inputs are numbers that float32 holds exactly, so the kernels of both types get the same.

A case is a line ``case NAME rows n k temperature option``, followed by its arrays: a length and the numbers,
in hexadecimal so that none is rounded.
"""

import itertools
import math
import sys
from collections.abc import Iterable
from fractions import Fraction

import torch
from torch import Tensor

import khot
from khot.kernels import loader
from khot.relaxations.rows.network import _kernel as network_kernel

GATES = {"sigmoid": 0, "laplace": 1, "sparse": 2, "normal": 3}
SMALL = {
    "softsort": 0,
    "iterative": 1,
    "neuralsort": 2,
    "successive_softmax": 3,
    "network": 4,
    "pairwise": 5,
    "soft_rank": 6,
    "successive_halving": 7,
}
WINDOW = 0.7


def case(name: str, size: tuple[int, int], k: float, temperature: float, option: float, *arrays: Tensor):
    sys.stdout.write(f"case {name} {size[0]} {size[1]} {float(k)} {float(temperature)} {float(option)}\n")
    for array in arrays:
        numbers = array.reshape(-1).tolist()
        sys.stdout.write(f"{len(numbers)} {' '.join(_written(number) for number in numbers)}\n")


def _written(number: float) -> str:
    return number.hex() if isinstance(number, float) else str(int(number))


def scores(rows: int, n: int, seed: int) -> Tensor:
    x = torch.randn(rows, n, generator=torch.Generator().manual_seed(seed)).double()
    x[0, : max(1, n // 3)] = x[0, 0]  # ties
    return x


def with_gradient(operator, x: Tensor, g: Tensor, *arguments, **options) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    y = operator(x, *arguments, **options)
    return y.detach(), torch.autograd.grad(y, x, g)[0]


def gates() -> None:
    everything = torch.empty(0)
    for name, number in GATES.items():
        operator = getattr(khot, f"{name}_topk")
        for n, k, temperature in ((2, 1.0, 1.0), (37, 5.0, 0.1), (1000, 12.5, 0.3), (40_000, 900.0, 1.0)):
            x, g = scores(2, n, n), scores(2, n, n + 1)
            for norm in (2.0, 1.5) if name == "sparse" else (2.0,):
                options = {"norm": norm} if name == "sparse" else {}
                y, product = with_gradient(operator, x, g, k, temperature=temperature, **options)
                arrays = (torch.tensor([norm]), everything, x, y, g, product)
                case("gate", (2, n), k, temperature, number, *arrays)
        x, g = scores(3, 50, 0), scores(3, 50, 1)
        x[1, 4], x[1, 7], x[2, :3] = -math.inf, math.inf, -(2.0**100)
        mask = torch.rand(3, 50, generator=torch.Generator().manual_seed(2)) < 0.7
        y, product = with_gradient(operator, x, g, 6, temperature=0.5, mask=mask)
        case("gate", (3, 50), 6.0, 0.5, number, torch.tensor([2.0]), mask.long(), x, y, g, product)


def halves() -> None:
    for number, dtype in enumerate((torch.bfloat16, torch.float16)):
        x = scores(3, 200, 5).to(dtype)
        y = khot.sigmoid_topk(x.double(), 9, temperature=0.25)
        case("half", (3, 200), 9.0, 0.25, number, x.view(torch.int16).long() & 0xFFFF, y)


def order() -> None:
    for n, k in ((1, 1), (9, 3), (300, 40), (70_000, 512)):
        x = scores(2, n, n)
        case("hard", (2, n), k, 1.0, 0, x, khot.hard_topk(x, k))
        for descending in (False, True):
            indices = x.sort(dim=-1, stable=True, descending=descending)[1]
            case("argsort", (2, n), k, 1.0, descending, x, indices)
        found = khot.topk_entries(x, k, temperature=0.5)
        case("entries", (2, n), k, 0.5, 0, x, found.indices, found.weights, found.values)


def ranks() -> None:
    for n in (2, 33, 400):
        x, g = scores(2, n, n), scores(2, n, n + 1)
        y, product = with_gradient(khot.soft_rank, x, g, temperature=0.3, descending=True)
        case("soft_rank", (2, n), 1, 0.3, 0, x, y, g, product)


def small_rows() -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    for name, number in SMALL.items():
        options = {"window": WINDOW} if name in ("pairwise", "soft_rank") else {}
        x, g = scores(3, 16, number), scores(3, 16, number + 100)
        temperature = 0.4**2 if name == "iterative" else 0.4  # in units of squared scores
        operator = getattr(khot, f"{name}_topk")
        y, product = with_gradient(operator, x, g, 5, temperature=temperature, **options)
        layers = network_kernel("bitonic", "logistic", 16, 5).layers if name == "network" else nothing
        window = torch.tensor([WINDOW], dtype=torch.float64)
        case("small", (3, 16), 5, 0.4, number, window, layers, x, y, g, product)


def router() -> None:
    x, g = scores(40, 60, 3), torch.randn(40, 4, generator=torch.Generator().manual_seed(4)).double()
    for renormalise in (False, True):
        leaf = x.clone().requires_grad_()
        weights, indices = leaf.softmax(-1).sort(dim=-1, descending=True, stable=True)
        weights, indices = weights[:, :4], indices[:, :4]
        weights = weights / weights.sum(-1, keepdim=True) if renormalise else weights
        product = torch.autograd.grad(weights, leaf, g)[0]
        case("router", (40, 60), 4, 1.0, renormalise, x, indices, weights.detach(), g, product)


def systematic() -> None:
    """Unit i is drawn if 1 − u plus the sum of π up to i passes a whole number, in exact arithmetic."""
    pi = [Fraction(i % 16, 16) for i in range(1, 65)]  # with sum 30
    pi += [Fraction(1)] * 2
    draws, expected = [Fraction(2 * i + 1, 128) for i in range(64)], list[float]()
    for u in draws:
        ends = list(itertools.accumulate(pi, initial=1 - u))
        expected += [float(math.floor(b) > math.floor(a)) for a, b in itertools.pairwise(ends)]
    probs = torch.tensor([float(p) for p in pi])
    case("systematic", (1, len(pi)), int(sum(pi)), 1, 0, probs, _floats(draws), torch.tensor(expected))


def _floats(numbers: Iterable[Fraction]) -> Tensor:
    return torch.tensor([float(number) for number in numbers], dtype=torch.float64)


def frequencies() -> None:
    """Draws whose units must come with their probabilities; kernels.cpp says how far off they may be."""
    pi = torch.tensor([0.9, 0.1, 0.5, 0.25, 0.75, 0.5, 0.0, 1.0, 0.6, 0.4], dtype=torch.float64)
    pi = (pi * 1024).round() / 1024
    pi[-1] += 5 - pi.sum()
    generator = torch.Generator().manual_seed(7)
    for name, uniforms in (("pivotal", 15), ("brewer", 5)):
        u = torch.rand(20_000, uniforms, generator=generator, dtype=torch.float64)
        case(name, (1, 10), 5, 1, 0, pi, u)


def poisson() -> None:
    """Inclusion probabilities of conditional Poisson sampling, by all subsets of k of n."""
    n, k = 10, 4
    theta = scores(1, n, 9)[0]
    sets = torch.tensor(list(itertools.combinations(range(n), k)))
    chance = theta[sets].sum(-1).softmax(0)
    pi = torch.zeros(n, dtype=torch.float64).index_add_(0, sets.reshape(-1), chance.repeat_interleave(k))
    start = khot.inverse_sigmoid_topk(khot.sigmoid_topk(theta, k)) - theta  # the same for all units
    case("poisson", (1, n), k, 1, 0, theta, torch.tensor([start.mean().item()], dtype=torch.float64), pi)


if __name__ == "__main__":
    if loader.native() is not None:
        sys.exit("vectors.py: set KHOT_NO_NATIVE=1: the answers must not come from the kernels they test")
    for cases in (gates, halves, order, ranks, small_rows, router, systematic, frequencies, poisson):
        cases()
