"""The compiled kernels as operations that a graph of ``torch.compile`` can hold.

Each is a raw operation of ``torch.library``: a name with a schema, the kernel as its CPU implementation, for
some a Triton kernel for the GPU, the shapes of its results, and a rule for ``vmap``. None has an autograd
formula (one registered with torch would give ``jvp`` silent zeros): the operators' own ``autograd.Function``
calls them, so that derivatives are written once. A compiled operator is then one call of its kernel, and
there is little to compile.

Exported programs contain only aten operations, never these.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import Tensor

from khot.kernels import cpu, rounds, triton
from khot.kernels.availability import inside_a_transform, inside_forward_mode, is_exporting
from khot.kernels.loader import native

__all__ = [
    "argsort",
    "as_tensor",
    "block_sums",
    "draws_taken",
    "gate_jacobian",
    "gated_topk",
    "hard_topk",
    "isotonic",
    "pivotal",
    "sigmoid_jacobian",
    "sigmoid_topk",
    "systematic",
    "taken",
    "taken_on_gpu",
    "topk_entries",
    "tournament_round",
    "tournament_round_gradient",
]

_torch_library = cast("Any", torch.library)  # its functions have no types
library: Any = _torch_library.Library("khot", "DEF")
_DTYPES = (torch.float32, torch.float64)

Result = Literal["like", "state", "row", "pair", "indices", "places", "indices of places"]


def taken(*tensors: Tensor, constants: bool = False) -> bool:
    """Whether to call these operations: compiling, not exporting, with tensors that the kernels can read.

    In forward mode the answer is no, because a raw operation would lose the tangents, unless all arguments
    are constants.
    """
    return (
        torch.compiler.is_compiling()
        and not is_exporting()
        and (constants or not inside_forward_mode())
        and _library_is_there()
        and all(t.is_cpu and t.dtype in _DTYPES for t in tensors)
    )


def taken_on_gpu(*tensors: Tensor, doubles: bool = False) -> bool:
    """Whether to call the operations with a GPU kernel, compiled or eagerly: if enabled, and not exporting.

    The answer is no inside ``torch.func`` transforms, and where second derivatives are needed.
    """
    return (
        len(tensors) > 0
        and all(t.is_cuda or (t.is_cpu and _triton_is_interpreted()) for t in tensors)
        and _triton_is_on()
        and triton.usable(*tensors, doubles=doubles)
        and not is_exporting()
        and not inside_forward_mode()
        and not inside_a_transform()
    )


def draws_taken(probs: Tensor) -> bool:
    """Whether to call those that draw: compiling, or on a GPU; they have no rule for ``vmap``."""
    return not inside_a_transform() and (taken(probs) or taken_on_gpu(probs, doubles=True))


def as_tensor(number: float | Tensor, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """A number as a tensor without dimensions, so that another number does not cause a recompilation.

    It is made by a product, because Dynamo treats the result of torch.full as a constant.
    """
    if isinstance(number, Tensor):
        return number.to(device=device, dtype=dtype)
    return torch.ones((), dtype=dtype, device=device) * number


def _library_is_there() -> bool:
    return native() is not None


def _triton_is_on() -> bool:
    return triton.switched_on()


def _triton_is_interpreted() -> bool:
    return triton.interpreted()


# What torch.compiler.assume_constant_result does; that would import Dynamo with khot.
cast("Any", _library_is_there)._dynamo_marked_constant = True
cast("Any", _triton_is_on)._dynamo_marked_constant = True
cast("Any", _triton_is_interpreted)._dynamo_marked_constant = True


def _operation(
    schema: str,
    kernel: Callable[..., Any],
    *,
    rows: list[int],
    results: list[Result],
    k: int | None = None,
    gpu: str | None = None,
) -> Callable[..., Any]:
    """Register an operation; ``gpu`` names the module of ``khot.kernels.triton`` that has it too.

    ``rows`` says which of its arguments are tensors (…, n) or (…, 1); the first of them is what ``results``
    are ``"like"`` (a ``"state"`` too, but for half types), hold one value a ``"row"`` or a ``"pair"`` of
    values of, or ``"indices"`` into; argument number ``k`` says how many ``"places"`` a result has in the
    place of n. All are contiguous.
    """
    name = schema.partition("(")[0]
    _define(name, schema, kernel, gpu)

    def fake(*arguments: Any) -> Any:
        places = 1 if k is None else arguments[k]
        made = [_empty(result, arguments[rows[0]], places) for result in results]
        return made[0] if len(made) == 1 else tuple(made)

    _torch_library.register_fake(f"khot::{name}", fake, lib=library)
    operation = getattr(torch.ops.khot, name)

    def batched(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        rank = max(
            arguments[i].dim() - (in_dims[i] is not None) for i in rows if isinstance(arguments[i], Tensor)
        )
        changed = list(arguments)
        for i in rows:
            if isinstance(arguments[i], Tensor):
                changed[i] = _in_front(arguments[i], in_dims[i], rank, info.batch_size)
        out = operation(*changed)
        return out, 0 if len(results) == 1 else (0,) * len(results)

    _torch_library.register_vmap(f"khot::{name}", batched, lib=library)
    return cast("Callable[..., Any]", operation)


def _draw(schema: str, kernel: Callable[..., Any], gpu: str, *, of_nodes: bool = False) -> Callable[..., Any]:
    """Register a sampling design; its uniform variables are one a draw, or one for each node of a tree."""
    name = schema.partition("(")[0]
    _define(name, schema, kernel, gpu)

    def fake(probs: Tensor, k: int, u: Tensor, order: Tensor | None) -> Tensor:
        return probs.new_empty((*(u.shape[:-1] if of_nodes else u.shape), probs.shape[-1]))

    _torch_library.register_fake(f"khot::{name}", fake, lib=library)
    return cast("Callable[..., Any]", getattr(torch.ops.khot, name))


def _define(name: str, schema: str, kernel: Callable[..., Any], gpu: str | None) -> None:
    """The operation with its kernels; where Triton's interpreter is asked for, it serves the CPU too."""
    library.define(schema)
    if gpu is None:
        library.impl(name, kernel, "CPU")
        return
    from_triton = _from_triton(gpu, name)

    def on_cpu(*arguments: Any) -> Any:
        return (from_triton if triton.interpreted() else kernel)(*arguments)

    library.impl(name, on_cpu, "CPU")
    library.impl(name, from_triton, "CUDA")


def _from_triton(module: str, name: str) -> Callable[..., Any]:
    """The kernel of that name, imported when it is called: few have Triton."""

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(f"khot.kernels.triton.{module}"), name)(*arguments)

    return call


def _in_front(tensor: Tensor, dim: int | None, rank: int, size: int) -> Tensor:
    """The batch in front, then ``rank`` dimensions, all of the tensor's own last."""
    tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return tensor.reshape(size, *[1] * (rank + 1 - tensor.dim()), *tensor.shape[1:])


def _empty(result: Result, x: Tensor, places: int) -> Tensor:
    like = result in ("like", "state", "indices")
    shape = x.shape if like else (*x.shape[:-1], 2 if result == "pair" else places)
    if result == "state" and x.dtype != torch.float64:
        return x.new_empty(shape, dtype=torch.float32)
    return x.new_empty(shape, dtype=torch.int64 if result.startswith("indices") else x.dtype)


def _gated(
    gate: Any, x: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None, norm: float
) -> tuple[Tensor, Tensor]:
    y, state = cpu.gated_topk(gate, x, k, temperature, mask, norm=norm, state=True)
    assert state is not None
    return y, state


gated_topk = _operation(
    "gated_topk(str gate, Tensor x, Tensor k, Tensor temperature, Tensor? mask, float norm)"
    " -> (Tensor, Tensor)",
    _gated,
    rows=[1, 2, 3, 4],
    results=["like", "state"],
    gpu="gates",
)
"""Weights and state of a member of the threshold family; see ``khot.kernels.cpu.gated_topk``."""

sigmoid_topk = _operation(
    "sigmoid_topk(Tensor x, Tensor k, Tensor temperature, Tensor? mask) -> (Tensor, Tensor)",
    cpu.sigmoid_with_thresholds,
    rows=[0, 1, 2, 3],
    results=["like", "pair"],
)
"""Weights of sigmoid top-k, and two numbers a row."""

sigmoid_jacobian = _operation(
    "sigmoid_jacobian(Tensor y, Tensor x, Tensor thresholds, Tensor grad, Tensor temperature) -> Tensor",
    cpu.sigmoid_jacobian,
    rows=[0, 1, 2, 3, 4],
    results=["like"],
)
"""Its Jacobian times a vector, from these."""

gate_jacobian = _operation(
    "gate_jacobian(Tensor state, Tensor grad, Tensor temperature, str gate, float norm) -> (Tensor, Tensor)",
    cpu.gate_jacobian,
    rows=[0, 1, 2],
    results=["like", "row"],
    gpu="gates",
)
"""Its Jacobian times a vector, and the weighted mean in it."""

hard_topk = _operation(
    "hard_topk(Tensor x, Tensor k, Tensor? mask) -> Tensor",
    cpu.hard_topk,
    rows=[0, 1, 2],
    results=["like"],
    gpu="order",
)
"""Ones at the k largest."""

tournament_round = _operation(
    "tournament_round(Tensor v, Tensor m, Tensor t, SymInt size) -> (Tensor, Tensor)",
    rounds.tournament_round,
    rows=[0, 1, 2],
    results=["places", "like"],
    k=3,
    gpu="rounds",
)
"""One round of a tournament: what is left, and the shares of those who met."""

tournament_round_gradient = _operation(
    "tournament_round_gradient(Tensor v, Tensor m, Tensor t, Tensor grad, Tensor grad_share) -> Tensor",
    rounds.tournament_round_gradient,
    rows=[0, 1, 2, 3, 4],
    results=["like"],
    gpu="rounds",
)
"""Its gradient."""

systematic = _draw(
    "systematic(Tensor probs, SymInt k, Tensor u, Tensor? order) -> Tensor", cpu.systematic, "draws"
)
"""Systematic draws."""

pivotal = _draw(
    "pivotal(Tensor probs, SymInt k, Tensor u, Tensor? order) -> Tensor", cpu.pivotal, "duels", of_nodes=True
)
"""Tree pivotal draws."""

topk_entries = _operation(
    "topk_entries(Tensor x, SymInt k, Tensor? temperature, Tensor? mask, bool by_position)"
    " -> (Tensor, Tensor, Tensor)",
    cpu.topk_entries,
    rows=[0, 2, 3],
    results=["indices of places", "places", "places"],
    k=1,
)
"""Indices, weights and values of the k largest."""

argsort = _operation(
    "argsort(Tensor x, bool descending) -> (Tensor, Tensor)",
    cpu.argsort,
    rows=[0],
    results=["like", "indices"],
)
"""Values and indices of a stable sort."""

isotonic = _operation(
    "isotonic(Tensor s, Tensor w, str kind) -> (Tensor, Tensor)",
    cpu.isotonic,
    rows=[0, 1],
    results=["like", "indices"],
)
"""The projection on a permutahedron, and where the block of each entry begins."""

block_sums = _operation(
    "block_sums(Tensor values, Tensor start) -> Tensor",
    cpu.block_sums,
    rows=[0, 1],
    results=["like"],
)
"""Sums over the blocks of a projection."""
