"""The command `khot bench gpu`: for users with a GPU; it writes a file to send in."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import khot
from khot import designs
from khot.compare.machine import find_commit, find_machine, find_versions
from khot.files.whole import write_json
from khot.kernels import triton
from khot_bench.commands import fail

__all__ = ["gpu"]

SHAPES = ((8192, 64), (4096, 256), (1024, 1024), (64, 16384), (1, 1_000_000))
OPERATORS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sigmoid": khot.sigmoid_topk,
    "laplace": khot.laplace_topk,
    "sparse": khot.sparse_topk,
    "hard": khot.hard_topk,
    "successive halving": khot.successive_halving_topk,
}
DRAWS: dict[str, type[designs.KHotDistribution]] = {
    "systematic": designs.Systematic,
    "tree pivotal": designs.TreePivotal,
}
Quick = Annotated[bool, typer.Option("--quick", help="One small shape, few repeats: a quick test.")]
Output = Annotated[Path, typer.Option(help="The JSON file to write.")]


def gpu(quick: Quick = False, output: Output = Path("khot-gpu.json")) -> None:
    """On a CUDA device: compare results with the CPU, then time against torch.softmax; see KHOT_TRITON."""
    if not torch.cuda.is_available():
        fail("no CUDA device is here: nobody has run khot's GPU kernels yet, and this machine cannot either")
    rows: list[dict[str, Any]] = []
    for shape in SHAPES[:1] if quick else SHAPES:
        x = torch.randn(shape, device="cuda")
        k = max(1, shape[-1] // 16)
        base = _milliseconds(lambda x=x: torch.softmax(x, -1), 5 if quick else 50)
        for name, operator in OPERATORS.items():
            error = (operator(x, k).cpu() - operator(x.cpu(), k)).abs().max().item()
            time = _milliseconds(lambda x=x, k=k, f=operator: f(x, k), 5 if quick else 50)
            rows.append(_row(name, shape, k, error, time, base))
        for name, design in DRAWS.items():
            drawn = design(k, probs=khot.sparse_topk(x, k), validate_args=False)
            error = (drawn.sample().sum(-1) - k).abs().max().item()
            time = _milliseconds(drawn.sample, 5 if quick else 50)
            rows.append(_row(name, shape, k, error, time, base))
    commit = find_commit()
    write_json(
        {
            "device": torch.cuda.get_device_name(),
            "kernels": "triton" if triton.switched_on() else "portable",
            "machine": dataclasses.asdict(find_machine()),
            "versions": find_versions(("triton",)),
            "commit": None if commit is None else dataclasses.asdict(commit),
            "measurements": rows,
        },
        output,
    )
    typer.echo(f"written: {output}")
    if any(row["error"] > 1e-5 for row in rows):
        fail("a result differs from that of the CPU by more than 1e-5")


def _row(name: str, shape: tuple[int, ...], k: int, error: float, time: float, base: float) -> dict[str, Any]:
    typer.echo(f"{name:<18} {shape!s:<14} k = {k:<6} {time / base:7.2f} × softmax, error {error:.1e}")
    return {"operator": name, "shape": list(shape), "k": k, "error": error} | {
        "milliseconds": time,
        "softmax_milliseconds": base,
        "ratio": time / base,
    }


def _milliseconds(call: Callable[[], Tensor], repeats: int) -> float:
    """The median time of a call on the device, after a few that are not counted."""
    for _ in range(3):
        call()
    times: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)
