"""The threshold family over shards: sigmoid, Laplace and sparse top-k of rows that several processes hold.

    yᵢ = F((xᵢ + c)/τ),   c such that Σy = k over the shards of all processes.

Cost: 4 to 6 messages of O(1) numbers per row for a long row, 10 to 19 for a short or nearly hard one, and one
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
    r"""Relax the indicator of the ``k`` largest scores of rows that several processes hold.

    .. math:: y_i = \sigma\big((x_i + c)/\tau\big), \qquad c \text{ such that } \textstyle\sum_i y_i = k

    This is :func:`khot.sigmoid_topk` for shards: the sum is over the shards of all processes. Every process
    must make the call, even with an empty shard; if one calls ``backward``, all must. Differentiable once, in
    reverse mode, in ``scores``, in a tensor ``k`` and in a tensor ``temperature``.

    Units: the temperature divides the scores. Cost: 4 to 6 messages of O(1) numbers per row for a long row,
    10 to 19 for a short one, one in the backward pass.

    Args:
        scores: this process's shard, a floating-point tensor; only the length of ``dim`` may differ between
            processes. Or a ``DTensor``: if a mesh dimension has ``Shard(dim)``, its processes solve the rows
            together, else each solves its own.
        k: budget of the whole row, 0 ≤ k ≤ n; the same in all processes. Each process gets its whole
            gradient, that of the sum of the losses of all processes.
        temperature: > 0; the same in all processes, with a gradient like that of ``k``.
        dim: the dimension that sums to ``k``, along which the scores are split.
        mask: boolean, broadcastable to this shard; False gets weight 0 and gradient 0. It may exclude the
            whole shard.
        largest: False selects the smallest scores.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).
        group: the processes; by default all, or this one alone if there is no process group.

    Returns:
        Weights in the shape and dtype of this shard; over all shards, a row sums to min(k, allowed).

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
    r"""Relax the indicator of the ``k`` largest scores of rows in several processes, with Laplace gates.

    .. math:: y_i = F\big((x_i + c)/\tau\big), \quad
              F(a) = \begin{cases} e^a/2 & a < 0 \\ 1 - e^{-a}/2 & a \ge 0 \end{cases}, \quad
              c \text{ such that } \textstyle\sum_i y_i = k

    This is :func:`khot.laplace_topk` for shards. Gradients, cost and rules are those of
    :func:`khot.parallel.sigmoid_topk`.

    Args:
        scores: this process's shard, or a ``DTensor``.
        k: budget of the whole row, 0 ≤ k ≤ n; the same in all processes.
        temperature: > 0; the same in all processes.
        dim: the dimension that sums to ``k``, along which the scores are split.
        mask: boolean, broadcastable to this shard; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).
        group: the processes; by default all, or this one alone if there is no process group.

    Returns:
        Weights in the shape and dtype of this shard; over all shards, a row sums to min(k, allowed).

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
    r"""Relax the indicator of the ``k`` largest scores of rows in several processes, with exact zeros.

    .. math:: y_i = \min\big(1, ((x_i + c)/\tau)_+^{1/(q-1)}\big), \qquad \textstyle\sum_i y_i = k

    This is :func:`khot.sparse_topk` for shards: weights far from the threshold are exactly 0 or 1. Gradients,
    cost and rules are those of :func:`khot.parallel.sigmoid_topk`.

    Args:
        scores: this process's shard, or a ``DTensor``.
        k: budget of the whole row, 0 ≤ k ≤ n; the same in all processes.
        norm: q in (1, 2]; 2 is the Euclidean projection on the capped simplex.
        temperature: > 0; the same in all processes.
        dim: the dimension that sums to ``k``, along which the scores are split.
        mask: boolean, broadcastable to this shard; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).
        group: the processes; by default all, or this one alone if there is no process group.

    Returns:
        Weights in the shape and dtype of this shard; over all shards, a row sums to min(k, allowed).

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
