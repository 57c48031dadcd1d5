"""One of the processes: measures in turns with the others; the first prints what was found.

python -m khot_bench.distributed.child REQUEST RANK STORE
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import khot
from khot import parallel

__all__ = ["main"]


class _Counter:
    """Messages, and bytes that one process sends in them, while it is open.

    A sum over P processes sends 2(P − 1)/P times its size, as a ring does; a gathering P − 1 times.
    """

    def __init__(self) -> None:
        self.messages, self.bytes = 0, 0.0
        self._kept: dict[str, Any] = {}

    def __enter__(self) -> _Counter:
        share = {"all_reduce": 2 * (dist.get_world_size() - 1) / dist.get_world_size()}
        for name, place in (("all_reduce", 0), ("all_gather", 1), ("all_gather_into_tensor", 1)):
            self._kept[name] = call = getattr(dist, name)
            factor = share.get(name, dist.get_world_size() - 1)

            def counted(*args: Any, _call: Any = call, _place: int = place, _factor: float = factor) -> Any:
                self.messages += 1
                self.bytes += args[_place].nbytes * _factor
                return _call(*args)

            setattr(dist, name, counted)
        return self

    def __exit__(self, *_: Any) -> None:
        for name, call in self._kept.items():
            setattr(dist, name, call)


def _gathered(part: Tensor) -> Tensor:
    whole = part.new_empty(dist.get_world_size() * part.numel())
    dist.all_gather_into_tensor(whole, part)  # pyright: ignore[reportUnknownMemberType, reportDeprecated]
    return whole


def _calls(method: str, mode: str, x: Tensor, k: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Ours and the usual way: gather the scores, call the operator, keep the own part."""
    rank, n = dist.get_rank(), x.numel()
    grad = torch.sin(x)

    def ours() -> Tensor:
        if method == "hard":
            return parallel.hard_topk(x, k)
        if mode == "forward":
            return parallel.topk(x, k, method)
        part = x.clone().requires_grad_()
        parallel.topk(part, k, method).backward(grad)  # pyright: ignore[reportUnknownMemberType]
        assert part.grad is not None
        return part.grad

    def usual() -> Tensor:
        whole = _gathered(x)
        mine = slice(rank * n, (rank + 1) * n)
        if method == "hard":
            return khot.hard_topk(whole, k)[mine]
        if mode == "forward":
            return khot.topk(whole, k, method)[mine]
        whole.requires_grad_()
        y = khot.topk(whole, k, method)
        y.backward(_gathered(grad))  # pyright: ignore[reportUnknownMemberType]
        assert whole.grad is not None
        return whole.grad[mine]

    return ours, usual


def _in_turns(calls: tuple[Callable[[], Tensor], ...], rounds: int) -> list[float]:
    """The median time of each, the slowest process counts."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for times, call in zip(found, calls, strict=True):
            dist.barrier()  # pyright: ignore[reportUnknownMemberType]
            began = time.perf_counter()
            call()
            spent = torch.tensor(time.perf_counter() - began, dtype=torch.float64)
            dist.all_reduce(spent, dist.ReduceOp.MAX)  # pyright: ignore[reportUnknownMemberType]
            times.append(float(spent))
    return [statistics.median(times) for times in found]


def _constants(rounds: int) -> dict[str, float]:
    """Seconds of a message of 64 bytes, and bytes a second of a large one."""
    small, large = torch.zeros(8, dtype=torch.float64), torch.zeros(4_000_000)

    def send_small() -> Tensor:
        for _ in range(100):
            dist.all_reduce(small)  # pyright: ignore[reportUnknownMemberType]
        return small

    seconds, whole = _in_turns((send_small, lambda: _gathered(large)), rounds)
    return {"latency": seconds / 100, "bandwidth": large.nbytes * (dist.get_world_size() - 1) / whole}


def main(request: dict[str, Any], rank: int, store: str) -> None:
    """Measure, and print JSON if this is the first process."""
    torch.set_num_threads(1)
    size = request["processes"]
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    rows: list[dict[str, Any]] = []
    x = torch.randn(request["n"] // size, generator=torch.Generator().manual_seed(rank))
    for method in request["methods"]:
        for mode in ("forward",) if method == "hard" else ("forward", "forward+backward"):
            ours, usual = _calls(method, mode, x, request["k"])
            with _Counter() as sent:
                mine = ours()
            with _Counter() as usually:
                expected = usual()
            apart = (mine - expected).abs().max().to(torch.float64)
            dist.all_reduce(apart, dist.ReduceOp.MAX)  # pyright: ignore[reportUnknownMemberType]
            del mine, expected
            seconds, usual_seconds = _in_turns((ours, usual), request["rounds"])
            rows.append(
                {
                    "method": method,
                    "mode": mode,
                    "processes": size,
                    "seconds": seconds,
                    "usual_seconds": usual_seconds,
                    "messages": sent.messages,
                    "bytes": int(sent.bytes),
                    "usual_bytes": int(usually.bytes),
                    "apart": float(apart),
                }
            )
    constants = _constants(request["rounds"]) if size > 1 else {}
    if rank == 0:
        sys.stdout.write(json.dumps({"rows": rows, **constants}))
    dist.barrier()  # pyright: ignore[reportUnknownMemberType]
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
