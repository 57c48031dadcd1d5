"""The processes of a call: the only file that talks to ``torch.distributed``."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

__all__ = ["Group", "ProcessGroup", "joined"]

ProcessGroup = Any  # torch.distributed.ProcessGroup, which is not there in a torch without it


def joined(group: ProcessGroup | None) -> Group:
    """The processes of a group; a `Group` stays as it is."""
    return group if isinstance(group, Group) else Group(group)


class Group:
    """The processes that hold a row together: those of ``group``, by default all, or this one alone.

    Every process must make the same calls in the same order. All of them get the same bits, so they make the
    same decisions.

    Args:
        group: a process group of ``torch.distributed``; None for all processes, or for this one alone if
            there is no process group.
    """

    def __init__(self, group: ProcessGroup | None = None) -> None:
        self._group = group
        self.size, self.rank = 1, 0
        if dist.is_available() and dist.is_initialized():
            self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        elif group is not None:
            raise ValueError("group: there is no process group; call torch.distributed.init_process_group")
        if self.rank < 0:
            raise ValueError("group: this process is not one of its members")

    def total(self, local: Tensor) -> Tensor:
        """The sum over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(local, dist.ReduceOp.SUM, self._group)  # pyright: ignore[reportUnknownMemberType]
        return local

    def largest(self, local: Tensor) -> Tensor:
        """The maximum over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(local, dist.ReduceOp.MAX, self._group)  # pyright: ignore[reportUnknownMemberType]
        return local

    def each(self, local: Tensor) -> Tensor:
        """The tensors of all processes, stacked in the order of their ranks."""
        if self.size == 1:
            return local.unsqueeze(0)
        found = local.new_empty((self.size, *local.shape))
        dist.all_gather(list(found.unbind()), local.contiguous(), self._group)  # pyright: ignore[reportUnknownMemberType]
        return found

    def words(self, local: Any) -> list[Any]:
        """Python objects of all processes: for error messages only."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, local, self._group)  # pyright: ignore[reportUnknownMemberType]
        return found

    def before(self, local: Tensor) -> Tensor:
        """The sum over the processes with a lower rank."""
        return self.each(local)[: self.rank].sum(0)
