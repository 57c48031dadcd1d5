"""The processes that train together: one, or those started by torchrun, with gloo."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["Processes", "joined_processes", "placed_like", "whole"]


@dataclass(frozen=True)
class Processes:
    """The number of processes that train together, and the rank of this one."""

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def device(self, name: str | None) -> torch.device:
        """The device of this name; by default the GPU of this process, if there is one, else the CPU."""
        if name is None:
            name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
            raise ValueError(f"train: device {name!r} cannot be used: {error}") from error
        return device

    def replicated(self, model: nn.Module) -> nn.Module:
        """The model, with gradients averaged over the processes."""
        return nn.parallel.DistributedDataParallel(model) if self.count > 1 else model

    def shard_(self, model: nn.Module, device: torch.device) -> None:
        """Leave each process a part of every parameter; gradients are averaged (FSDP2)."""
        if self.count > 1:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            fully_shard(model, mesh=init_device_mesh(device.type, (self.count,)))

    def summed(self, value: Tensor) -> Tensor:
        """The sum over the processes."""
        if self.count > 1:
            dist.all_reduce(value)  # pyright: ignore[reportUnknownMemberType]
        return value

    def gathered(self, value: Tensor) -> list[Tensor]:
        """The value of each process."""
        if self.count == 1:
            return [value]
        values = [torch.empty_like(value) for _ in range(self.count)]
        dist.all_gather(values, value)  # pyright: ignore[reportUnknownMemberType]
        return values


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which each process has a part: all of them must ask."""
    return cast("Any", tensor).full_tensor() if hasattr(tensor, "full_tensor") else tensor


def placed_like(tensor: Tensor, other: Tensor) -> Tensor:
    """This process's part of a tensor that is whole, if it has a part of the other one; else all of it."""
    if not hasattr(other, "full_tensor") or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    like = cast("Any", other)
    return distribute_tensor(tensor, like.device_mesh, like.placements)


@contextlib.contextmanager
def joined_processes() -> Generator[Processes]:
    """The processes of torchrun if this is one of them, otherwise only this process."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes()
        return
    dist.init_process_group("gloo")
    try:
        yield Processes(dist.get_rank(), count)
        # No process goes while another still waits for its numbers.
        dist.barrier()  # pyright: ignore[reportUnknownMemberType]
    finally:
        gc.collect()  # a replica that is left would keep the group, and its threads, until Python itself ends
        dist.destroy_process_group()
