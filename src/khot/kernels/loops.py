"""A long loop as one operation in a graph of ``torch.compile``.

A loop unrolled into hundreds of small steps takes Inductor minutes to compile, and runs no faster. Here the
loop is a raw operation of ``torch.library``, like the kernels (``khot.kernels.operations``): the compiled
graph holds one call of it, and inside that call torch runs eagerly and may read values. Like the kernels, it
has no autograd formula, which would give ``jvp`` silent zeros. So it is called only where nothing is
differentiated, or inside an ``autograd.Function`` whose backward pass is another such operation. It works on
any device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels.availability import inside_a_transform, inside_forward_mode, is_exporting
from khot.kernels.operations import library

__all__ = ["as_operation", "loops_are_operations"]

_torch_library = cast("Any", torch.library)  # its functions have no types


def loops_are_operations(*, of_constants: bool = False) -> bool:
    """Whether to call these operations: compiling, not exporting, and not inside ``torch.func`` transforms.

    Inside a transform an operation would lose tangents, and Dynamo does not always see that a gradient is
    needed. With ``of_constants`` the arguments are detached or indices, so neither matters.
    """
    compiled = torch.compiler.is_compiling() and not is_exporting()
    return compiled and (of_constants or not (inside_a_transform() or inside_forward_mode()))


def as_operation(
    schema: str,
    loop: Callable[..., Any],
    look: Callable[..., Any],
    *,
    argument_aside: int | None = None,
    result_aside: int | None = None,
) -> Callable[..., Any]:
    """Register ``loop`` under the name in its schema; ``look`` makes empty results from its arguments.

    All tensors, arguments and results, share the same leading batch dimensions; ``vmap`` adds one more. Only
    the tensors whose positions are given as ``aside`` have no batch dimensions.
    """
    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, loop, "CompositeExplicitAutograd")
    _torch_library.register_fake(f"khot::{name}", look, lib=library)
    operation = getattr(torch.ops.khot, name)

    def batched(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        changed = list(arguments)
        for i, (argument, dim) in enumerate(zip(arguments, in_dims, strict=True)):
            if isinstance(argument, Tensor) and i != argument_aside:
                changed[i] = _in_front(argument, dim, info.batch_size)
        results = operation(*changed)
        if isinstance(results, Tensor):
            return results, 0
        return results, tuple(None if i == result_aside else 0 for i in range(len(results)))

    _torch_library.register_vmap(f"khot::{name}", batched, lib=library)
    return cast("Callable[..., Any]", operation)


def _in_front(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
