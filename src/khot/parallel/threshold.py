"""The threshold family over shards: ``khot.sigmoid_topk``, ``laplace_topk`` and ``sparse_topk`` of rows that
several processes hold.

Cost: 4 to 6 messages of O(1) numbers a row for a long row, 10 to 19 for a short or nearly hard one, and one
in the backward pass; three or four passes over the shard of a long row. See ``_solver.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from khot.parallel._dtensors import is_dtensor, on_dtensor
from khot.parallel._functions import gated_shards
from khot.parallel._group import Group, ProcessGroup, joined
from khot.parallel._hard import hard_shards
from khot.parallel._outside import outside_graphs
from khot.parallel._shards import as_shards
from khot.relaxations._arguments import Number
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import LAPLACE, LOGISTIC, Gate
from khot.relaxations.threshold.sparse import sparse_gate

__all__ = ["laplace_topk", "sigmoid_topk", "sparse_topk"]


def sigmoid_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
    group: ProcessGroup | None = None,
) -> Tensor:
    r""":func:`khot.sigmoid_topk` of scores that are sharded along ``dim``.

    .. math:: y_i = \sigma\big((x_i + c)/\tau\big), \qquad c \text{ such that } \textstyle\sum_i y_i = k

    the sum over the shards of all processes. Every process must call it, also with an empty shard, and if one
    calls ``backward`` all must. First derivatives only.

    Args:
        scores: this process's shard, any floating shape; all but ``dim`` alike in all processes. Or a
            ``DTensor``: one with ``Shard(dim)`` is solved by the processes of that mesh dimension, others
            locally.
        k: the budget of the whole row, 0 ≤ k ≤ n; the same in all processes, each of which gets the whole of
            its gradient, that of the sum of all processes' losses.
        temperature: > 0, likewise.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to this shard; a shard may be masked out as a whole.
        largest: False selects the smallest.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).
        group: the processes; by default all, or this one alone if there is no process group.

    Returns:
        The weights of this shard.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in sigmoid_topk(x, 2).tolist()]  # one process: all of the row
        [0.859, 0.451, 0.691]
    """
    return _gated("sigmoid_topk", lambda: LOGISTIC, scores, k, temperature, dim, mask, largest, hard, group)


def laplace_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
    group: ProcessGroup | None = None,
) -> Tensor:
    r""":func:`khot.laplace_topk` of scores that are sharded along ``dim``.

    .. math:: y_i = F\big((x_i + c)/\tau\big), \qquad c \text{ such that } \textstyle\sum_i y_i = k

    What is said of :func:`khot.parallel.sigmoid_topk` holds here too.

    Args:
        scores: this process's shard, or a ``DTensor``.
        k: the budget of the whole row.
        temperature: > 0.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to this shard.
        largest: False selects the smallest.
        hard: exact hard top-k forward, this operator's gradient backward.
        group: the processes.

    Returns:
        The weights of this shard.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in laplace_topk(x, 2).tolist()]
        [0.905, 0.355, 0.741]
    """
    return _gated("laplace_topk", lambda: LAPLACE, scores, k, temperature, dim, mask, largest, hard, group)


def sparse_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    norm: float = 2.0,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
    group: ProcessGroup | None = None,
) -> Tensor:
    r""":func:`khot.sparse_topk` of scores that are sharded along ``dim``.

    .. math:: y_i = \min\big(1, ((x_i + c)/\tau)_+^{1/(q-1)}\big), \qquad \textstyle\sum_i y_i = k

    What is said of :func:`khot.parallel.sigmoid_topk` holds here too.

    Args:
        scores: this process's shard, or a ``DTensor``.
        k: the budget of the whole row.
        norm: q in (1, 2]; 2 is the Euclidean projection on the capped simplex.
        temperature: > 0.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to this shard.
        largest: False selects the smallest.
        hard: exact hard top-k forward, this operator's gradient backward.
        group: the processes.

    Returns:
        The weights of this shard.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in sparse_topk(x, 2).tolist()]
        [1.0, 0.0, 1.0]
    """

    def gate() -> Gate:
        return sparse_gate("sparse_topk", norm)

    return _gated("sparse_topk", gate, scores, k, temperature, dim, mask, largest, hard, group, norm)


def _gated(
    name: str,
    gate: Callable[[], Gate],
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    hard: bool,
    group: ProcessGroup | None,
    norm: float = 2.0,
) -> Tensor:
    if is_dtensor(scores):

        def on_shards(
            scores: Tensor,
            k: Number | Tensor,
            temperature: Number | Tensor,
            mask: Tensor | None,
            members: Group,
        ) -> Tensor:
            return _on_group(name, gate, scores, k, temperature, dim, mask, largest, hard, members, norm)

        return on_dtensor(name, scores, k, temperature, dim, mask, group, on_shards)
    return _on_group(name, gate, scores, k, temperature, dim, mask, largest, hard, joined(group), norm)


def _on_group(
    name: str,
    gate: Callable[[], Gate],
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    hard: bool,
    group: Group,
    norm: float,
) -> Tensor:
    if group.size == 1:
        return gated_topk(name, gate(), scores, k, temperature, dim, mask, largest, hard)
    return _over_processes(name, gate, scores, k, temperature, dim, mask, largest, hard, group, norm)


@outside_graphs
def _over_processes(
    name: str,
    gate: Callable[[], Gate],
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    hard: bool,
    group: Group,
    norm: float,
) -> Tensor:
    others = {"hard": hard, "norm": norm}
    shards = as_shards(
        name, group, scores, k, temperature, dim, mask, largest, integer=hard, others=others, check=gate
    )
    y = shards.back(gated_shards(gate(), shards, group))
    return straight_through(y, shards.back(hard_shards(shards, group))) if hard else y
