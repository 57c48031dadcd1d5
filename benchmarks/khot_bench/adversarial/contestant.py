"""A side in the matrix: how it is called, and what it promises."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from khot.compare.cost.calls import NoGradient
from khot.compare.cost.side import Side, load_side
from khot.relaxations import registry
from khot.relaxations.registry import Relaxation

__all__ = ["Contestant", "load_contestant"]

_FAMILY = {
    "colt5.coor_descent": "sigmoid",
    "diffsort.DiffSortNet": "network",
    "difftopk.DiffTopkNet": "network",
    "difftopk.NeuralSort": "neuralsort",
    "difftopk.SoftSort": "softsort",
    "softtorch.topk": "neuralsort",
}
"""The operator of khot that promises of its map what this peer's map could."""

_SOFT_AT_ANY_SCALE = {
    "softtorch.topk": "it divides the scores by their deviation",
    "khot.pairwise_topk": "windows of unit width on the ranks",
    "khot.soft_rank_topk": "windows of unit width on the ranks",
    "khot.successive_softmax_topk": "what a round takes away grows with the scores",
}
"""Maps that become hard as the temperature falls, but not as the scores grow, and why."""


@dataclass(frozen=True)
class Contestant:
    """A side, and the declared properties it is held to: its own, or those of khot's operator of its kind."""

    side: Side
    promises: Relaxation

    @property
    def ranks(self) -> bool:
        """Whether it gives soft ranks instead of weights."""
        return self.side.result == "ranks"

    @property
    def soft_because(self) -> str:
        """Why scores that are far apart need not give a hard selection; empty if they must."""
        return _SOFT_AT_ANY_SCALE.get(self.side.name, "")

    def weights(self, x: Tensor, k: int) -> Tensor:
        """Its result without a graph; random ones are seeded anew at every call."""
        with torch.no_grad(), _seeded():
            return self.side.function(x, k)

    def along(self, x: Tensor, k: int, dim: int) -> Tensor | None:
        """Likewise along a dimension; None if it has no such argument."""
        if self.side.along is None:
            return None
        with torch.no_grad(), _seeded():
            return self.side.along(x, k, dim)

    def pulled_back(self, x: Tensor, k: int, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Its result at the leaf made of x, and the gradient of `grad · result`."""
        leaf = x.detach().requires_grad_()
        with _seeded():
            y = self.side.function(leaf, k)
            if not y.requires_grad:
                raise NoGradient(f"{self.side.name} has no gradient")
            (gradient,) = torch.autograd.grad(y, leaf, grad)
        return y.detach(), gradient

    def jacobian(self, x: Tensor, k: int) -> Tensor:
        """∂y_i/∂x_j of a single row x, shape (1, n)."""
        n = x.shape[-1]
        units = torch.eye(n, dtype=x.dtype)
        return torch.cat([self.pulled_back(x, k, units[i : i + 1])[1] for i in range(n)])


def load_contestant(source: str) -> Contestant:
    """The side of the source; one that is like no operator of khot is held to every promise."""
    side = load_side(source)
    name = side.map or _FAMILY.get(side.name, "")
    known = registry.specs().get(name)
    return Contestant(side, known or Relaxation(name=side.name, weights=side.function, max_n=1_000_000))


@contextlib.contextmanager
def _seeded() -> Generator[None]:
    """Torch's default generator as from seed 0, and afterwards as it was."""
    state = torch.get_rng_state()
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    try:
        yield
    finally:
        torch.set_rng_state(state)
