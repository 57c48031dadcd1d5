"""BatchTopK over a global batch: the k·B largest entries of the batches of all processes.

Cost: that of :func:`khot.parallel.hard_topk` for one row of all entries.

Reference: Bussmann, Leask & Nanda (2024), BatchTopK Sparse Autoencoders, arXiv:2412.06410.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from khot.parallel._agreement import agreed_sizes
from khot.parallel._dtensors import is_dtensor
from khot.parallel._group import ProcessGroup, joined
from khot.parallel._hard import hard_shards
from khot.parallel._outside import outside_graphs
from khot.parallel._shards import Shards
from khot.relaxations._arguments import allowed_scores, check_count, check_mask, position

__all__ = ["batch_topk"]


@outside_graphs
def batch_topk(
    scores: Tensor, k: int, *, mask: Tensor | None = None, group: ProcessGroup | None = None
) -> Tensor:
    r"""Mark the k·B largest scores of all processes, which have B rows together.

    .. math:: \sum_{b=1}^{B} \sum_{i=1}^{n} y_{bi} = k B, \qquad y \in \{0, 1\}^{B \times n}

    A row gets k ones on average: rows that need more take them from other rows, in any process. The result is
    that of one process with the whole batch. Ties go by process, then row, then index.

    Args:
        scores: the rows (…, n) of this process. Processes may have different numbers of rows, but the same n.
        k: how many ones a row gets on average, an integer, 0 ≤ k ≤ n.
        mask: boolean, broadcastable to ``scores``; False is never selected.
        group: the processes; by default all, or this one alone if there is no process group.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, without a gradient. To train, multiply the scores
        by them, or use :func:`khot.relaxations.straight_through`.

    Example:
        >>> batch_topk(torch.tensor([[5.0, 4.0, 3.0], [0.0, 1.0, 2.0]]), 2)
        tensor([[1., 1., 1.],
                [0., 0., 1.]])
    """
    name, members = "batch_topk", joined(group)

    def describe() -> tuple[int, dict[str, Any]]:
        last = position(name, scores, -1)
        if is_dtensor(scores):
            raise TypeError(f"{name}: scores must be a plain tensor, got a DTensor; use scores.to_local()")
        check_count(name, scores, k, last)
        if mask is not None:
            check_mask(name, scores, mask)
        facts: dict[str, Any] = {
            "the dtype of scores": scores.dtype,
            "the length of a row": scores.shape[last],
            "k": int(k),
        }
        return scores.shape[:-1].numel(), facts

    device = scores.device if isinstance(scores, Tensor) else torch.device("cpu")  # pyright: ignore[reportUnnecessaryIsInstance]
    sizes = agreed_sizes(name, members, device, describe)
    n = scores.shape[-1]
    rows = allowed_scores(name, scores.detach(), mask).reshape(1, scores.numel())
    budget = torch.full((1, 1), float(k * sum(sizes)), dtype=torch.float64, device=device)
    shards = Shards(rows, budget, budget, sum(sizes) * n, sum(sizes[: members.rank]) * n, rows.shape, 1)
    return hard_shards(shards, members).view(scores.shape)
