"""Checks under ``torch.compile``, ``torch.export`` and autocast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from khot.relaxations.registry import Relaxation
from khot.testing.requirements import draw, require, require_close, scores

__all__ = ["CHECKS"]

Options = Mapping[str, Any]


def check_compile(spec: Relaxation, options: Options) -> None:
    """``torch.compile(fullgraph=True)`` equals eager, forward and backward, without code generation."""
    _compare_compiled(spec, options, "aot_eager")


def check_compiled_jvp(spec: Relaxation, options: Options) -> None:
    """Forward mode can be compiled too, and equals eager mode."""
    if spec.stochastic:
        return
    directions = (scores(4, 10, seed=1), torch.tensor(0.3, dtype=torch.float64))

    def slope(x: Tensor, temperature: Tensor) -> Tensor:
        def weights(x: Tensor, temperature: Tensor) -> Tensor:
            return spec.weights(x, 3, temperature=temperature, **options)

        return torch.func.jvp(weights, (x, temperature), directions)[1]

    inputs = _inputs()
    compiled = _compiled(slope, "aot_eager")
    require_close(compiled(*inputs), slope(*inputs), 1e-9, "compiled forward derivative")


def check_inductor(spec: Relaxation, options: Options) -> None:
    """The code that torch generates equals eager, forward and backward."""
    if " " not in torch.__file__:  # it cannot compile with headers in a folder whose name has a space
        _compare_compiled(spec, options, "inductor")


def _compare_compiled(spec: Relaxation, options: Options, backend: str) -> None:
    if spec.stochastic:
        return

    def cost(x: Tensor, temperature: Tensor) -> Tensor:
        return spec.weights(x, 3, temperature=temperature, **options).square().sum()

    inputs = tuple(leaf.requires_grad_() for leaf in _inputs())
    compiled = _compiled(cost, backend)
    actual, expected = compiled(*inputs), cost(*inputs)
    require_close(actual, expected, 1e-9, "compiled value")
    for mine, eager in zip(
        torch.autograd.grad(actual, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        require_close(mine, eager, 1e-9, "compiled gradient")


def _inputs() -> tuple[Tensor, Tensor]:
    return scores(4, 10), torch.tensor(0.7, dtype=torch.float64)


def _compiled(function: Callable[..., Tensor], backend: str) -> Callable[..., Tensor]:
    torch.compiler.reset()  # each operator is another program, and torch counts them
    return torch.compile(function, fullgraph=True, backend=backend)  # pyright: ignore[reportUnknownMemberType]


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
    """Under autocast the operator runs in the dtype of its input and stays as accurate."""
    x = scores(3, 8, dtype=torch.float32).requires_grad_()
    expected = draw(spec, x, 3, options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = draw(spec, x, 3, options)
    require_close(y, expected, 1e-6, "autocast")
    torch.autograd.grad(y.sum(), x)


CHECKS = [check_compile, check_compiled_jvp, check_inductor, check_export, check_autocast]
