"""An operator without a kernel as one operation in a graph of ``torch.compile``, and one for its gradient.

This is for operators with many rounds, which Inductor takes far too long to compile. Inside the two
operations torch runs eagerly, and so takes the eager time: the first records an autograd graph, the second
goes back through it. A *ticket*, a tensor among the results, holds the graph and keeps it alive: a compiled
program saves the ticket for its backward pass, or drops it. If the graph is gone, or has other shapes (a
batch of gradients in ``vmap``), the forward pass is computed again, and nothing else changes.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from khot.kernels.loops import as_operation, loops_are_operations

__all__ = ["WeightsAt", "whole"]

WeightsAt = Callable[[Tensor, Tensor, Tensor, int, Tensor], Tensor]
"""Weights (…, n): of scores (…, n), which are allowed (…, n), k (…, 1), its maximum, temperatures (…, 1)."""

Result = tuple[Tensor, Tensor]
_functions: dict[str, WeightsAt] = {}


def whole(name: str, weights: WeightsAt) -> WeightsAt:
    """The same function; in compiled code it is a single operation called ``name``."""
    _functions[name] = weights

    def called(z: Tensor, allowed: Tensor, k: Tensor, most: int, tau: Tensor) -> Tensor:
        if not loops_are_operations():
            return weights(z, allowed, k, most, tau)
        learned = [torch.is_grad_enabled() and t.requires_grad for t in (z, tau)]
        allowed, k, tau = (t.expand(*z.shape[:-1], t.shape[-1]) for t in (allowed, k, tau))
        return cast("Result", _Whole.apply(z, tau, allowed, k, name, most, learned))[0]  # pyright: ignore[reportUnknownMemberType]

    return called


class _Whole(torch.autograd.Function):
    """(scores, temperatures, allowed, k, name, most, which of these two are learned) → (weights, ticket)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        z: Tensor, tau: Tensor, allowed: Tensor, k: Tensor, name: str, most: int, learned: list[bool]
    ) -> Result:
        return _whole_weights(z, tau, allowed, k, name, most, learned)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Result) -> None:
        z, tau, allowed, k, *ctx.others = inputs
        _, ticket = output
        ctx.mark_non_differentiable(ticket)
        ctx.save_for_backward(ticket, z, tau, allowed, k)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        found = _whole_gradients(grads[0], *ctx.saved_tensors, *ctx.others)
        of_scores, of_temperatures = ctx.others[-1]
        return found[0] if of_scores else None, found[1] if of_temperatures else None, *(None,) * 5


class _Recorded(np.ndarray[Any, Any]):
    """The memory of a ticket, its number, with the graph: torch keeps the array as long as the tensor."""

    leaves: list[Tensor]
    result: Tensor


_numbers = itertools.count(1)
_graphs: weakref.WeakValueDictionary[int, _Recorded] = weakref.WeakValueDictionary()


@contextlib.contextmanager
def _as_eagerly() -> Generator[None]:
    """With autograd, which is switched off where a compiled program runs."""
    excluded = torch._C._dispatch_tls_local_exclude_set()  # pyright: ignore
    for key in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView"):
        excluded = excluded.remove(getattr(torch._C.DispatchKey, key))  # pyright: ignore
    included = torch._C._dispatch_tls_local_include_set()  # pyright: ignore
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch.enable_grad():  # pyright: ignore
        yield


def _record(
    z: Tensor, tau: Tensor, allowed: Tensor, k: Tensor, name: str, most: int, learned: Sequence[bool]
) -> _Recorded:
    recorded = np.full(1, next(_numbers)).view(_Recorded)  # pyright: ignore[reportUnknownMemberType]
    with _as_eagerly():
        z, tau = (t.detach().requires_grad_(has) for t, has in zip((z, tau), learned, strict=True))
        recorded.leaves = [t for t in (z, tau) if t.requires_grad]
        recorded.result = _functions[name](z, allowed, k, most, tau)
    return recorded


def _weights(
    z: Tensor, tau: Tensor, allowed: Tensor, k: Tensor, name: str, most: int, learned: Sequence[bool]
) -> Result:
    recorded = _record(z, tau, allowed, k, name, most, learned)
    y = recorded.result.detach().clone(memory_format=torch.contiguous_format)
    if not recorded.leaves:
        return y, torch.zeros(1, dtype=torch.int64)
    _graphs[int(recorded[0])] = recorded
    return y, torch.from_numpy(recorded)  # pyright: ignore[reportUnknownMemberType]


def _gradients(
    grad: Tensor,
    ticket: Tensor,
    z: Tensor,
    tau: Tensor,
    allowed: Tensor,
    k: Tensor,
    name: str,
    most: int,
    learned: Sequence[bool],
) -> Result:
    """In the scores and in the temperatures; 0 in what is not learned."""
    recorded = _graphs.get(int(ticket))
    if recorded is None or recorded.result.shape != grad.shape:
        recorded = _record(z, tau, allowed, k, name, most, learned)
    with _as_eagerly():
        found = iter(
            torch.autograd.grad(recorded.result, recorded.leaves, grad, retain_graph=True, allow_unused=True)
        )
    of_scores, of_temperatures = (next(found) if has else None for has in learned)
    return _or_zeros(of_scores, z), _or_zeros(of_temperatures, tau)


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return like.new_zeros(like.shape) if gradient is None else gradient.contiguous()


def _look_at_weights(z: Tensor, *others: Any) -> Result:
    return z.new_empty(z.shape), torch.empty(1, dtype=torch.int64)


def _look_at_gradients(grad: Tensor, ticket: Tensor, z: Tensor, tau: Tensor, *others: Any) -> Result:
    return z.new_empty(z.shape), tau.new_empty(tau.shape)


_whole_weights = as_operation(
    "whole(Tensor z, Tensor tau, Tensor allowed, Tensor k, str name, int most, bool[] learned)"
    " -> (Tensor, Tensor)",
    _weights,
    _look_at_weights,
    result_aside=1,
)
_whole_gradients = as_operation(
    "whole_gradients(Tensor grad, Tensor ticket, Tensor z, Tensor tau, Tensor allowed, Tensor k, str name,"
    " int most, bool[] learned) -> (Tensor, Tensor)",
    _gradients,
    _look_at_gradients,
    argument_aside=1,
)
