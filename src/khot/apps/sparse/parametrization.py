"""A weight that uses only its k largest entries, as a torch parametrization.

The dense weight w, ``original``, is trained; the layer computes with

    w̃ = w · m,   m = the indicator of the k entries with the largest |w|.

The mask m is a buffer. It is chosen when the parametrization is registered and when
:class:`~khot.apps.sparse.Sparsification` updates it, not at each access of ``.weight``, so the budget always
holds. Methods differ in the gradient of w:

* the gradient of w̃ (straight-through), for all entries or for a larger set of the largest ones, as in
  Top-KAST;
* the gradient of a relaxation of the mask, w · y(|w|), with ``method=``.

Cost: an elementwise product at each access; choosing the mask is one ``hard_topk``.

References: Jayakumar, Pascanu, Rae, Osindero & Elsen (2020), Top-KAST, arXiv:2106.03517; Zhou et al. (2021),
N:M sparsity, arXiv:2102.04010.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from khot.apps.sparse._pattern import as_pattern, grouped, ungrouped
from khot.apps.sparse.budgets import check_density
from khot.kernels.availability import is_plain
from khot.nn._tempered import Tempered
from khot.relaxations._arguments import check_temperature
from khot.relaxations._plain_arguments import check_switch, is_integer
from khot.relaxations.facade import topk
from khot.relaxations.hard import hard_topk
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through

if TYPE_CHECKING:
    from khot.apps.sparse.sparsification import Sparsification

__all__ = ["TopKSparse"]


class TopKSparse(Tempered):
    """Keep the largest entries of a weight by magnitude; a parametrization for any tensor.

    :func:`khot.apps.sparse.sparsify` applies it to a whole model, with one budget for all layers if you want.
    On a single layer the mask is chosen at once, and again by :meth:`select_`. Cost: an elementwise product
    at each access; choosing the mask is one :func:`khot.hard_topk`.

    Args:
        density: the share to keep, in [0, 1]: round(density · n) entries.
        pattern: instead of ``density``: ``"N:M"`` or ``(N, M)`` keeps N of each M along the dimension
            ``dim``.
        dim: the dimension of the pattern; by default 1, the input dimension of a linear layer.
        backward_density: the share of entries that get a gradient, those of largest magnitude: 1 for all
            (straight-through), 0 for the kept ones only, in between for the larger set of Top-KAST. Not with
            ``method``.
        method: a relaxation, by name or as a :class:`khot.relaxations.Relaxation`, whose gradient is used:
            that of ``w * topk(abs(w) / rms, k, method)``. Random methods are refused.
        temperature: the temperature of the method, in units of the weight's root mean square. It is saved,
            and :class:`khot.schedules.TemperatureScheduler` can anneal it.
        hard: with a method: the exact mask forward. False computes with the soft weights, whose sum is the
            budget, until the model is made permanent.

    Example:
        >>> from torch.nn.utils import parametrize
        >>> layer = torch.nn.Linear(8, 4)
        >>> parametrized = parametrize.register_parametrization(layer, "weight", TopKSparse(0.25))
        >>> int((layer.weight != 0).sum())
        8
        >>> layer.weight.sum().backward()
        >>> int((layer.parametrizations.weight.original.grad != 0).sum())  # all 32 learn
        32

    Reference: Jayakumar, Pascanu, Rae, Osindero & Elsen (2020), Top-KAST, arXiv:2106.03517.
    """

    mask: Tensor
    learns: Tensor | None  # zeros and ones in the dtype of the weight, as products with booleans are slow
    factor: Tensor  # the mask likewise, or where it is wider, what learns and is not kept

    def __init__(
        self,
        density: float | None = None,
        *,
        pattern: str | tuple[int, int] | None = None,
        dim: int = 1,
        backward_density: float = 1.0,
        method: str | Relaxation | None = None,
        temperature: float = 1.0,
        hard: bool = True,
    ) -> None:
        name = type(self).__name__
        if (density is None) == (pattern is None):
            raise ValueError(f"{name}: give density or pattern, got {density} and {pattern}")
        if density is not None:
            check_density(name, "density", density)
        check_density(name, "backward_density", backward_density)
        check_switch(name, "hard", hard)
        if not is_integer(dim):
            raise TypeError(f"{name}: dim must be an integer, got {dim!r}")
        check_temperature(name, temperature)
        relaxation = None if method is None else get(method, name)
        if relaxation is None and (isinstance(temperature, Tensor) or temperature != 1.0 or not hard):
            raise ValueError(f"{name}: temperature and hard belong to a method, and method is None")
        if relaxation is not None and relaxation.stochastic:
            raise ValueError(f"{name}: method must not be random, got {relaxation.name!r}")
        if relaxation is not None and backward_density != 1:
            raise ValueError(
                f"{name}: backward_density has no effect with method {relaxation.name!r}, "
                f"got {backward_density}"
            )
        super().__init__(None if relaxation is None else temperature, False)
        self.density = density
        self.pattern = None if pattern is None else as_pattern(name, pattern)
        self.dim, self.backward_density = dim, float(backward_density)
        self.relaxation, self.hard = relaxation, hard
        self.group: Sparsification | None = None
        self.steps, self.frozen, self.kept = 0, False, 0
        self.churn: float | None = None
        self.records_gradient = False
        self.recorded: Tensor | None = None
        self.register_buffer("mask", torch.empty(0, dtype=torch.bool))
        self.register_buffer("factor", torch.empty(0), persistent=False)
        wider = relaxation is None and 0 < backward_density < 1
        self.register_buffer("learns", torch.empty(0) if wider else None)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Take a new dense weight, and choose a mask of the same size for it, unless the mask is frozen."""
        if not self.frozen:
            self.select_(weight, None if self.group is None else self.kept)
        return weight

    def forward(self, weight: Tensor) -> Tensor:
        """The sparse weight, with which the layer computes."""
        if self.mask.shape != weight.shape:
            self.select_(weight)
        if self.relaxation is not None:
            made = weight * self.gates(weight)
        elif self.backward_density == 0:
            made = weight * self.factor
        else:  # what is not kept is w − w, exactly 0, and w has the gradient
            learning = weight if self.learns is None else weight * self.learns
            made = torch.addcmul(learning, weight.detach(), self.factor, value=-1)
        if self.records_gradient and made.requires_grad:
            made.register_hook(self._record)  # pyright: ignore[reportUnknownMemberType]
        return made

    def gates(self, weight: Tensor) -> Tensor:
        """The factor of the weight: the mask with the method's gradient, or the soft weights."""
        if self.relaxation is None:
            return self.mask.to(weight.dtype)
        # |w| at temperature τ · rms is |w| / rms at τ, without a division of the whole weight.
        dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
        ends = torch.finfo(dtype)
        temperature = (self.temperature * _rms(weight.detach(), dtype)).clamp(ends.tiny, ends.max)
        k = self.kept if self.pattern is None else self.pattern[0]
        soft = topk(self._rows(weight.abs()), k, self.relaxation, temperature=temperature)
        soft = ungrouped(soft, self.dim) if self.pattern is not None else soft.view(weight.shape)
        return straight_through(soft, self.factor) if self.hard else soft

    @torch.no_grad()
    def select_(self, weight: Tensor, kept: int | None = None) -> None:
        """Choose a new mask for a weight.

        Args:
            weight: the dense weight.
            kept: how many entries to keep, if not the layer's own share.
        """
        self._check_pattern(weight)
        sizes = self._rows(weight.detach().abs())
        if self.pattern is not None:
            chosen = ungrouped(hard_topk(sizes, self.pattern[0]), self.dim)
        else:
            if kept is None:
                assert self.density is not None
                kept = round(self.density * sizes.numel())
            chosen = hard_topk(sizes, kept).view(weight.shape)
        wider = None
        if self.learns is not None:
            count = max(self.learning(weight.numel()), kept or 0)
            wider = hard_topk(weight.detach().abs().flatten(), count).view(weight.shape)
            wider = torch.maximum(wider, chosen)  # of ties, and of a pattern, others may be kept
        self.keep_(chosen, wider)

    @torch.no_grad()
    def keep_(self, chosen: Tensor, learns: Tensor | None = None) -> None:
        """Set the mask of zeros and ones, and the set of entries that get a gradient."""
        self.churn, mask = None, chosen.bool()
        kept = int(torch.count_nonzero(mask))  # of booleans, for that of floats is slow
        if self.mask.shape == chosen.shape:
            same = int(torch.count_nonzero(mask & self.mask))
            self.churn = 1 - same / kept if kept else 0.0
        self.kept = kept
        self._write("mask", mask)
        if learns is not None:
            self._write("learns", learns)
        self._write("factor", chosen)
        if self.relaxation is None and self.backward_density != 0:  # what learns and is not kept
            self.factor.neg_().add_(1.0 if self.learns is None else self.learns)

    def _write(self, name: str, values: Tensor) -> None:
        """In place where that can be: what is compiled stays compiled."""
        buffer = self._buffers[name]
        if buffer is not None and buffer.shape == values.shape:
            buffer.copy_(values)
        else:
            self._buffers[name] = values.clone()

    def forget_(self) -> None:
        """Remove the mask, so that the next one counts as the first."""
        self.mask = self.mask.new_empty(0)

    def learning(self, size: int) -> int:
        """How many of ``size`` entries get a gradient, if more than are kept."""
        return round(self.backward_density * size)

    def take_gradient(self) -> Tensor | None:
        """The dense gradient recorded since the last call, if there is one."""
        taken, self.recorded = self.recorded, None
        return taken

    def _record(self, gradient: Tensor) -> None:
        self.recorded = gradient.clone() if self.recorded is None else self.recorded + gradient

    def _rows(self, weight: Tensor) -> Tensor:
        return weight.flatten() if self.pattern is None else grouped(weight, self.pattern[1], self.dim)

    def _check_pattern(self, weight: Tensor) -> None:
        if self.pattern is None:
            return
        name, dims, of = type(self).__name__, weight.dim(), self.pattern[1]
        if not -dims <= self.dim < dims:
            raise IndexError(f"{name}: dim must be in [{-dims}, {dims - 1}], got {self.dim}")
        if weight.shape[self.dim] % of:
            raise ValueError(
                f"{name}: pattern {self.pattern[0]}:{of} needs a size divisible by {of} in dimension "
                f"{self.dim}, that of the weight is {weight.shape[self.dim]}"
            )

    def get_extra_state(self) -> Tensor:
        """Extra state to save: number of steps, whether the mask is frozen, and how many entries it keeps."""
        return torch.tensor([self.steps, int(self.frozen), self.kept], dtype=torch.int64)

    def set_extra_state(self, state: Tensor) -> None:
        """Resume from a saved state."""
        steps, frozen, kept = (int(number) for number in state)
        self.keep_(self.mask.to(self.factor.dtype))
        self.steps, self.frozen, self.kept, self.churn = steps, bool(frozen), kept, None
        if self.group is not None:
            self.group.listen()

    def extra_repr(self) -> str:
        """Show the settings."""
        shown = [f"density={self.density}"] if self.pattern is None else []
        shown += [f"pattern={self.pattern[0]}:{self.pattern[1]}"] if self.pattern is not None else []
        if self.relaxation is not None:
            shown += [f"method={self.relaxation.name!r}", self._shown_temperature(), f"hard={self.hard}"]
        elif self.backward_density != 1:
            shown.append(f"backward_density={self.backward_density}")
        return ", ".join([*shown, *(["frozen"] if self.frozen else [])])


def _rms(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The root of the mean square, by the largest weight where squares overflow or nobody may look."""
    root = max(weight.numel(), 1) ** 0.5
    norm = _norm(weight, dtype)
    if weight.numel() == 0 or (is_plain(norm) and not math.isinf(norm)):
        return norm / root
    wide = weight.to(dtype)
    largest = wide.abs().amax().clamp_min(torch.finfo(dtype).tiny)
    return _norm(wide / largest, dtype) / root * largest


def _norm(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return cast("Tensor", torch.linalg.vector_norm(weight, dtype=dtype))  # pyright: ignore
