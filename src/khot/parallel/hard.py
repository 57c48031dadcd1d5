"""Hard top-k over shards: the indicator of the k largest scores of rows that several processes hold.

    y ∈ {0, 1}ⁿ maximises ⟨x, y⟩ subject to Σy = min(k, allowed).

Ties go to the lower index in the whole row. Cost: a selection in each shard and one message of k numbers per
row and process; for k above 512 a few messages of 32 numbers per row instead.
"""

from __future__ import annotations

from torch import Tensor

from khot.parallel._dtensors import is_dtensor, on_dtensor
from khot.parallel._group import Group, ProcessGroup, joined
from khot.parallel._hard import hard_shards
from khot.parallel._outside import outside_graphs
from khot.parallel._shards import as_shards
from khot.relaxations import hard as one_process
from khot.relaxations._arguments import Number

__all__ = ["hard_topk"]


def hard_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Mark the ``k`` largest scores of rows that several processes hold with 1, all others with 0.

    This is :func:`khot.hard_topk` for shards, and selects exactly what that selects in the whole row: ties go
    to the lower index of the whole row.

    Args:
        scores: this process's shard, or a ``DTensor``.
        k: an integer, 0 ≤ k ≤ n for whole rows of n, or a tensor (rounded to integers); the same in all
            processes.
        dim: the dimension along which to select, and along which the scores are split.
        mask: boolean, broadcastable to this shard; False is never selected.
        largest: False marks the smallest scores.
        group: the processes; by default all, or this one alone if there is no process group.

    Returns:
        Zeros and ones in the shape and dtype of this shard, without a gradient.

    Example:
        >>> hard_topk(torch.tensor([2.0, 3.0, 2.0, 1.0]), 2)
        tensor([1., 1., 0., 0.])
    """

    def on_shards(
        scores: Tensor, k: Number | Tensor, temperature: Number | Tensor, mask: Tensor | None, members: Group
    ) -> Tensor:
        del temperature
        if members.size == 1:
            return one_process.hard_topk(scores, k, dim=dim, mask=mask, largest=largest)
        return _over_processes(scores, k, dim, mask, largest, members)

    if is_dtensor(scores):
        return on_dtensor("hard_topk", scores, k, 1.0, dim, mask, group, on_shards)
    return on_shards(scores, k, 1.0, mask, joined(group))


@outside_graphs
def _over_processes(
    scores: Tensor, k: Number | Tensor, dim: int, mask: Tensor | None, largest: bool, group: Group
) -> Tensor:
    scores = scores.detach() if isinstance(scores, Tensor) else scores  # pyright: ignore[reportUnnecessaryIsInstance]
    k = k.detach() if isinstance(k, Tensor) else k
    shards = as_shards("hard_topk", group, scores, k, 1.0, dim, mask, largest, integer=True)
    return shards.back(hard_shards(shards, group))
