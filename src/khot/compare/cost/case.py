"""The input of the functions that are measured: named and seeded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from khot.relaxations._plain_arguments import check_choice

__all__ = ["SCORES", "Case"]

Draw = Callable[[tuple[int, ...], torch.Generator], Tensor]


def _gaussian(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _wide(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return 20 * _gaussian(shape, generator)  # as at a temperature of 0.05


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def _cauchy(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.empty(shape, dtype=torch.float64).cauchy_(generator=generator)


def _ties(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(0, 4, shape, generator=generator).to(torch.float64)


def _equal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return _gaussian((), generator).expand(shape).clone()


def _sorted(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return _gaussian(shape, generator).sort(dim=-1, descending=True).values


SCORES: dict[str, Draw] = {
    "gaussian": _gaussian,
    "uniform": _uniform,
    "cauchy": _cauchy,
    "ties": _ties,
    "equal": _equal,
    "sorted": _sorted,
    "wide": _wide,
}
"""How scores can be drawn: heavy tails, few distinct values and sorted rows trip other code paths."""

_DTYPES = ("float16", "bfloat16", "float32", "float64")
_TINY = 1024


@dataclass(frozen=True)
class Case:
    """One input: its shape, the distribution of its scores, and k."""

    name: str
    shape: tuple[int, ...]
    k: int
    dtype: str = "float32"
    scores: str = "gaussian"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be made."""
        check_choice("Case", "scores", self.scores, SCORES)
        check_choice("Case", "dtype", self.dtype, _DTYPES)
        if not self.shape or not 0 < self.k <= self.shape[-1]:
            raise ValueError(f"k must lie in 1 … {self.shape[-1:]}, the last of shape; got {self.k}")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The torch dtype."""
        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def elements(self) -> int:
        """The total number of scores."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size of the input."""
        return self.elements * self.torch_dtype.itemsize

    @property
    def tiny(self) -> bool:
        """Whether the case measures the overhead of a call rather than the work in it."""
        return self.elements <= _TINY

    @property
    def label(self) -> str:
        """The label of the case in tables: its name, and k, dtype and scores if the name omits them."""
        facts = [f"k={self.k}"]
        facts += [] if self.dtype == "float32" else [self.dtype]
        facts += [] if self.scores == "gaussian" else [self.scores]
        said = self.name.lower().split()
        return " ".join([self.name, *(fact for fact in facts if fact not in said)])

    def make(self) -> Tensor:
        """The input; the same at every call."""
        generator = torch.Generator().manual_seed(self.seed)
        return SCORES[self.scores](self.shape, generator).to(self.torch_dtype)

    def shrunk(self, n: int = 16) -> Case:
        """A small case of the same kind, to load and warm up a function before it is measured."""
        last = min(n, self.shape[-1])
        shape = (*(min(2, size) for size in self.shape[:-1]), last)
        return Case(self.name, shape, min(self.k, max(1, last // 4)), self.dtype, self.scores, self.seed)
