"""Calls on a DTensor: each process computes its local part, with those that hold the rest of the row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from khot.parallel._group import Group, ProcessGroup
from khot.parallel._outside import outside_graphs
from khot.relaxations._arguments import Number, position

__all__ = ["is_dtensor", "on_dtensor"]

Local = Callable[[Tensor, Number | Tensor, Number | Tensor, Tensor | None, Group], Tensor]


def is_dtensor(value: object) -> bool:
    """Whether a value is a DTensor; does not load the module that defines them."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


@outside_graphs
def on_dtensor(
    name: str,
    scores: Any,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    group: ProcessGroup | None,
    call: Local,
    *,
    more: int = 0,
    whole: bool = False,
) -> Tensor:
    """Apply ``call`` to the local parts; the result is a DTensor with the placements of the scores.

    Args:
        name: the function that was called, for errors.
        scores: a DTensor; the processes of a mesh dimension with ``Shard(dim)`` hold a row together.
        k: a number, a tensor for the local rows, or a DTensor.
        temperature: a number, a tensor for the local rows, or a DTensor.
        dim: the selected dimension.
        mask: a DTensor in the shape of the scores, or a tensor for the local part.
        group: must be None: a DTensor has its own processes.
        call: takes the local scores, k, temperature and mask, and the processes.
        more: how many dimensions the result has in front of those of the scores.
        whole: True if no other dimension may be sharded.
    """
    from torch.distributed.tensor import DTensor, Shard

    if group is not None:
        raise ValueError(f"{name}: group must be None for a DTensor, whose mesh says it, got {group!r}")
    last = position(name, scores, dim)
    mesh, placements = scores.device_mesh, scores.placements
    ours: list[int] = []
    for number, placement in enumerate(placements):
        if placement.is_partial():
            raise ValueError(
                f"{name}: scores must be Shard or Replicate in every mesh dimension, got {placements}; "
                "use scores.redistribute(...) first"
            )
        if placement.is_shard() and placement.dim % scores.dim() == last:
            ours.append(number)
    if len(ours) > 1:
        raise ValueError(
            f"{name}: dim {dim} must be sharded by one mesh dimension, got {placements}; "
            "flatten the mesh, or use scores.redistribute(...) first"
        )
    of_rows = [
        None if number in ours or not placement.is_shard() else _row_dim(placement.dim % scores.dim(), last)
        for number, placement in enumerate(placements)
    ]
    if whole and any(each is not None for each in of_rows):
        raise ValueError(
            f"{name}: only dim {dim} may be sharded, got {placements}; use scores.redistribute(...) first"
        )
    if mask is not None and is_dtensor(mask):
        if mask.shape != scores.shape:
            raise ValueError(
                f"{name}: mask, as a DTensor, must have the shape of scores, {tuple(scores.shape)}, "
                f"got {tuple(mask.shape)}"
            )
        mask = cast("Any", mask).redistribute(mesh, placements).to_local()
    members = Group(mesh.get_group(ours[0])) if ours else _Alone()
    y = call(
        scores.to_local(),
        _local_rows(k, mesh, of_rows, scores.dim() - 1, Shard),
        _local_rows(temperature, mesh, of_rows, scores.dim() - 1, Shard),
        mask,
        members,
    )
    shape = y.shape[:more] + scores.shape
    placements = [Shard(p.dim % scores.dim() + more) if p.is_shard() else p for p in placements]
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(y.contiguous(), mesh, placements, run_check=False, shape=shape, stride=stride)


class _Alone(Group):
    """This process alone: no dimension of the mesh shards the row."""

    def __init__(self) -> None:
        self.size, self.rank = 1, 0


def _row_dim(of_scores: int, last: int) -> int:
    return of_scores if of_scores < last else of_scores - 1


def _local_rows(value: Any, mesh: Any, of_rows: list[int | None], dims: int, shard: Any) -> Any:
    """k or the temperature for the local rows; its gradient is summed over the processes with other rows."""
    if not is_dtensor(value):
        return value
    from torch.distributed.tensor import Partial, Replicate

    placements: list[Any] = []
    gradients: list[Any] = []
    for of_row in of_rows:
        # Dimensions are aligned from the right; broadcasting may have left this one out, or made it 1 long.
        own = -1 if of_row is None else of_row - (dims - value.dim())
        sharded = own >= 0 and value.shape[own] > 1
        placements.append(shard(own) if sharded else Replicate())
        gradients.append(shard(own) if sharded else Replicate() if of_row is None else Partial())
    return value.redistribute(mesh, placements).to_local(grad_placements=gradients)
