"""The process in which one operator is compiled; not for use by hand.

A process of its own, without caches on disk: what is measured is a user's first compilation.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import khot
from khot.compare.cost.memory_child import claim_stdout

__all__ = ["measure"]

Function = Callable[..., Tensor]


def measure(method: str, shape: tuple[int, int], k: int, rounds: int) -> dict[str, Any]:
    """Seconds that the operator adds to a compilation, programs made, and time as a multiple of eager."""

    def operator(x: Tensor, temperature: Tensor | float) -> Tensor:
        return khot.topk(x, k, method, temperature=temperature).square().sum()

    def without(x: Tensor, temperature: Tensor | float) -> Tensor:
        return (x * temperature).square().sum()

    def loading(x: Tensor, temperature: Tensor | float) -> Tensor:
        return (x - temperature).exp().sum()

    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    x, tau = torch.randn(shape), torch.tensor(0.7)
    _first_call(loading, x, tau)
    base, _ = _first_call(without, x, tau)
    seconds, compiled = _first_call(operator, x, tau)
    made = _programs()
    for value in (0.6, 0.5, 0.4):
        _step(compiled, x, torch.tensor(value))
    for_tensors = _programs() - made
    ratio = _ratio(operator, compiled, x, tau, rounds)
    _, compiled = _first_call(operator, x, 0.7)
    made = _programs()
    for value in (0.6, 0.5, 0.4):
        _step(compiled, x, value)
    for_numbers = _programs() - made
    _, compiled = _first_call(operator, x, tau)
    made = _programs()
    for rows in (shape[0] // 2, shape[0] // 4, shape[0] - 7):
        _step(compiled, x[:rows], tau)
    return {
        "compile_seconds": seconds - base,
        "again_for_tensors": for_tensors,
        "again_for_numbers": for_numbers,
        "again_for_batches": _programs() - made,
        "ratio": ratio,
    }


def _first_call(function: Function, x: Tensor, temperature: Tensor | float) -> tuple[float, Function]:
    """Seconds of the first call with its backward pass, and the compiled function."""
    torch.compiler.reset()
    compiled: Function = torch.compile(function, fullgraph=True)  # pyright: ignore[reportUnknownMemberType]
    begin = time.perf_counter()
    _step(compiled, x, temperature)
    return time.perf_counter() - begin, compiled


def _step(function: Function, x: Tensor, temperature: Tensor | float) -> None:
    leaf = x.detach().requires_grad_()
    torch.autograd.grad(function(leaf, temperature), leaf)


def _programs() -> int:
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


def _ratio(eager: Function, compiled: Function, x: Tensor, tau: Tensor, rounds: int) -> float:
    """The least time of one over that of the other, in turns."""
    times: dict[Function, list[float]] = {eager: [], compiled: []}
    for _ in range(rounds):
        for function, found in times.items():
            begin = time.perf_counter()
            _step(function, x, tau)
            found.append(time.perf_counter() - begin)
    return min(times[compiled]) / min(times[eager])


def main(request: dict[str, Any]) -> None:
    """Print the measurement as JSON."""
    answers = claim_stdout()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = measure(request["method"], tuple(request["shape"]), request["k"], request["rounds"])
    answers.write(json.dumps(found) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
