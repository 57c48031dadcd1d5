"""The checked arguments of a call on shards, in row form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from khot.parallel._agreement import agreed_sizes
from khot.parallel._group import Group
from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    check_at_most,
    check_budget,
    check_mask,
    check_temperature,
    compute_dtype,
    directed,
    per_row,
    position,
)
from khot.relaxations._plain_arguments import check_switch
from khot.relaxations._temperature import within_range

__all__ = ["Shards", "as_shards"]


class Shards(NamedTuple):
    """This process's shard of rows, with the selected dimension last.

    ``scores`` (rows, here) are −inf where the mask excludes. ``k`` and ``temperature`` are (rows, 1), the
    same in all processes. ``n`` is the length of a whole row, and ``start`` the place of this shard in it.
    ``shape`` is the shape of the scores with the selected dimension, which was ``dim``, moved to the end.
    """

    scores: Tensor
    k: Tensor
    temperature: Tensor
    n: int
    start: int
    shape: torch.Size
    dim: int

    def back(self, rows: Tensor) -> Tensor:
        """Results (rows, here), in the shape of the scores."""
        return rows.reshape(self.shape).movedim(-1, self.dim)


def as_shards(
    name: str,
    group: Group,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    *,
    integer: bool = False,
    others: Mapping[str, Any] | None = None,
    check: Callable[[], object] = lambda: None,
) -> Shards:
    """Check the arguments, and that all processes have the same; return them in row form.

    Args:
        name: the function that was called, for errors.
        group: the processes.
        scores: this process's shard.
        k: budget of the whole row.
        temperature: > 0.
        dim: the selected dimension, along which the scores are split.
        mask: the mask of this shard.
        largest: False selects the smallest scores.
        integer: True if a number k must be an integer, as with ``hard=True``.
        others: what else must be the same in all processes.
        check: raises if another argument is wrong.
    """

    def describe() -> tuple[int, dict[str, Any]]:
        check()
        last = position(name, scores, dim)
        check_at_most(name, k)  # as far as can be said before n is known
        check_temperature(name, temperature)
        check_switch(name, "largest", largest)
        check_switch(name, "hard", integer)
        if mask is not None:
            check_mask(name, scores, mask)
        for argument, value in (("k", k), ("temperature", temperature)):
            per_row(name, argument, scores, value, last)
        # Whether there is a backward pass must be the same: it sums over the processes too.
        learns = torch.is_grad_enabled()
        gradients = [isinstance(t, Tensor) and t.requires_grad and learns for t in (scores, k, temperature)]
        facts = {
            "the dtype of scores": scores.dtype,
            "the number of dimensions of scores": scores.dim(),
            "dim": last,
            "the shape of scores without dim": tuple(scores.shape[:last] + scores.shape[last + 1 :]),
            "k": k,
            "temperature": temperature,
            "largest": largest,
            "what has a gradient (scores, k, temperature)": tuple(gradients),
            **(others or {}),
        }
        return scores.shape[last], facts

    device = scores.device if isinstance(scores, Tensor) else torch.device("cpu")  # pyright: ignore[reportUnnecessaryIsInstance]
    sizes = agreed_sizes(name, group, device, describe)
    last, n = position(name, scores, dim), sum(sizes)
    whole = scores.detach().new_empty(()).expand(*scores.shape[:last], n, *scores.shape[last + 1 :])
    check_budget(name, whole, k, last, integer=integer)
    k_rows = per_row(name, "k", scores, k, last)
    t_rows = per_row(name, "temperature", scores, within_range(temperature, compute_dtype(scores)), last)
    rows = allowed_scores(name, directed(name, scores, largest), mask).movedim(last, -1)
    shape = rows.shape
    count = shape[:-1].numel()
    return Shards(
        rows.reshape(count, shape[-1]),
        k_rows.reshape(count, 1),
        t_rows.reshape(count, 1),
        n,
        sum(sizes[: group.rank]),
        shape,
        last,
    )
