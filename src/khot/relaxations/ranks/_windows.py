"""Top-k from soft ranks: windows around the ranks 1 … k, for ranks of any kind.

    M[r, j] = softmax_j [log σ((r + ½ − ρ_j)/w) + log σ((ρ_j − r + ½)/w)],      y = Σ_{r ≤ k} M[r]

The window σ((r + ½ − ρ)/w) − σ((r − ½ − ρ)/w) equals this product of two gates up to a factor that is the
same for all entries, so rows are finite and sum to one for every width w. Weights are summed over blocks of
rows, forward and backward. Cost: O(kn) work, O(n) memory beyond a block.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import logsigmoid

from khot.kernels import cpu
from khot.relaxations._arguments import Number, check_temperature, compute_dtype, per_row, position
from khot.relaxations._problem import relaxed_matrix, relaxed_weights
from khot.relaxations._ranked_rows import Allowed, LogitsOf, rows_of, weights_of
from khot.relaxations._small_rows import SmallKernel
from khot.relaxations._temperature import within_range

__all__ = ["RanksOf", "matrix_from_ranks", "weights_from_ranks"]

RanksOf = Callable[[Tensor, Allowed], Tensor]
"""Descending soft ranks (…, n), at temperature 1, of finite scores (…, n), among those allowed."""

_LEAST = 1e-10  # of a window that the kernel takes
_NARROW = 1e-30  # a window of this width is hard, and distances divided by it do not overflow


def weights_from_ranks(
    name: str,
    ranks_of: RanksOf,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    window: Number | Tensor | None,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    hard: bool,
    kind: cpu.SmallKind | None = None,
) -> Tensor:
    """The weights of the operator called ``name``; the kernel ``kind`` computes short rows."""
    check_temperature(name, temperature)
    width = temperature if window is None else window
    check_temperature(name, width, "temperature" if window is None else "window")

    def weights(z: Tensor, allowed: Allowed, budgets: Tensor | None, most: int) -> Tensor:
        logits_of = _windows(ranks_of, _width(name, scores, temperature, window, dim))
        return weights_of(logits_of)(z, allowed, budgets, most)

    small = kind is not None and type(width) is float and _LEAST < width < 1 / _LEAST
    kernel = SmallKernel(kind, window=width) if small else None  # pyright: ignore[reportArgumentType]
    return relaxed_weights(name, weights, scores, k, temperature, dim, mask, largest, hard, kernel=kernel)


def matrix_from_ranks(
    name: str,
    ranks_of: RanksOf,
    scores: Tensor,
    k: int,
    temperature: Number | Tensor,
    window: Number | Tensor | None,
    dim: int,
    mask: Tensor | None,
    first: int = 1,
    kind: cpu.SmallKind | None = None,
) -> Tensor:
    """Soft one-hot rows ``first`` … k (…, k − first + 1, n); those beyond the allowed entries are 0."""

    def logits_of(z: Tensor, allowed: Allowed) -> Callable[[Tensor], Tensor]:
        return _windows(ranks_of, _width(name, scores, temperature, window, dim))(z, allowed)

    check_temperature(name, temperature)
    if window is not None:
        check_temperature(name, window, "window")
    kernel = SmallKernel(kind) if kind is not None and window is None else None
    return relaxed_matrix(
        name,
        rows_of(logits_of),
        scores,
        k,
        temperature,
        dim,
        mask,
        first=first,
        takes_none=True,
        kernel=kernel,
    )


def _width(
    name: str, scores: Tensor, temperature: Number | Tensor, window: Number | Tensor | None, dim: int
) -> Tensor:
    """The widths of the windows, (…, 1)."""
    last = position(name, scores, dim)
    argument, width = ("temperature", temperature) if window is None else ("window", window)
    check_temperature(name, width, argument)
    return per_row(name, argument, scores, within_range(width, compute_dtype(scores)), last).clamp_min(
        _NARROW
    )


def _windows(ranks_of: RanksOf, width: Tensor) -> LogitsOf:
    def logits_of(z: Tensor, allowed: Allowed) -> Callable[[Tensor], Tensor]:
        ranks = ranks_of(z, allowed).unsqueeze(-2)
        w = width.unsqueeze(-1)

        def logits(wanted: Tensor) -> Tensor:
            r = wanted.to(ranks.dtype).unsqueeze(-1)
            return logsigmoid((r + 0.5 - ranks) / w) + logsigmoid((ranks - r + 0.5) / w)

        return logits

    return logits_of
