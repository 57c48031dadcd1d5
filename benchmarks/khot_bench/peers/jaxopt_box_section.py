"""jaxopt (Blondel 2022): the Euclidean projection on the capped simplex, as a projection on a box section."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, cast

import torch
from torch import Tensor

from khot.compare.cost.side import Side
from khot_bench.peers import import_quietly

_NAME = "jaxopt.projection_box_section"
_PACKAGE = "jaxopt==0.8.5"


def load() -> Side:
    """The side, or `PeerAbsent`."""
    jax = import_quietly("jax", name=_NAME, package=_PACKAGE)
    jaxopt = import_quietly("jaxopt.projection", name=_NAME, package=_PACKAGE)
    forward, backward = _compiled(jax, jaxopt.projection_box_section)

    class BoxSection(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
            ctx.save_for_backward(x)
            ctx.k = k
            return _to_torch(forward(_to_jax(jax, x), float(k)))

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
            (x,) = ctx.saved_tensors
            return _to_torch(backward(_to_jax(jax, x), float(ctx.k), _to_jax(jax, grads[0]))), None

    def call(x: Tensor, k: int) -> Tensor:
        # It projects vectors; how they are batched is the caller's affair.
        return cast(Any, BoxSection).apply(x.reshape(-1, x.shape[-1]), k).reshape(x.shape)

    return Side(
        _NAME,
        "jaxopt",
        version("jaxopt"),
        call,
        "peer",
        map="sparse",
        note="compiled by XLA, whose threads the thread count of torch does not limit",
    )


def _compiled(jax: Any, projection: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def row(x: Any, k: Any) -> Any:
        ones = jax.numpy.ones_like(x)
        return projection(x, (0 * ones, ones, ones, k))

    rows = jax.vmap(row, in_axes=(0, None))

    def gradient(x: Any, k: Any, grad: Any) -> Any:
        return jax.vjp(rows, x, k)[1](grad)[0]

    return jax.jit(rows), jax.jit(gradient)


def _to_jax(jax: Any, x: Tensor) -> Any:
    return jax.numpy.from_dlpack(x.detach().contiguous())


def _to_torch(x: Any) -> Tensor:
    # XLA runs in the background: without waiting, only the start of the work would be timed.
    return torch.from_dlpack(x.block_until_ready())
