"""Checks under torch's other ways to run: compile, export, autocast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from khot.relaxations.registry import Relaxation
from khot.testing.requirements import draw, require, require_close, scores

__all__ = ["CHECKS"]

Options = Mapping[str, Any]


def check_compile(spec: Relaxation, options: Options) -> None:
    """``torch.compile(fullgraph=True)`` equals eager, forward and backward."""
    if spec.stochastic:
        return

    def cost(x: Tensor, temperature: Tensor) -> Tensor:
        return spec.weights(x, 3, temperature=temperature, **options).square().sum()

    inputs = (scores(4, 10).requires_grad_(), torch.tensor(0.7, dtype=torch.float64, requires_grad=True))
    torch.compiler.reset()  # each operator is another program, and torch counts them
    # Inductor cannot compile with headers in a folder whose name has a space; all before it can be tested.
    backend = "aot_eager" if " " in torch.__file__ else "inductor"
    compiled = torch.compile(cost, fullgraph=True, backend=backend)  # pyright: ignore[reportUnknownMemberType]
    actual, expected = compiled(*inputs), cost(*inputs)
    require_close(actual, expected, 1e-9, "compiled value")
    for mine, eager in zip(
        torch.autograd.grad(actual, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        require_close(mine, eager, 1e-9, "compiled gradient")


def check_export(spec: Relaxation, options: Options) -> None:
    """``torch.export`` gives a graph of aten operations only, with the same values."""
    if spec.stochastic:
        return

    class Exported(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return spec.weights(x, 3, **options)

    x = scores(4, 10, dtype=torch.float32)
    program = torch.export.export(Exported(), (x,))
    for node in program.graph.nodes:
        namespace = getattr(node.target, "namespace", "aten")
        require(namespace == "aten", f"the exported graph holds {node.target}")
    require_close(program.module()(x), draw(spec, x, 3, options), 1e-6, "exported value")


def check_autocast(spec: Relaxation, options: Options) -> None:
    """Under autocast the operator runs in its input's dtype and stays as exact."""
    x = scores(3, 8, dtype=torch.float32).requires_grad_()
    expected = draw(spec, x, 3, options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = draw(spec, x, 3, options)
    require_close(y, expected, 1e-6, "autocast")
    torch.autograd.grad(y.sum(), x)


CHECKS = [check_compile, check_export, check_autocast]
